package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"gyre/scripts/bench/gyre"
	"gyre/scripts/bench/work"
	"gyre/torch"
)

// peers are the programs that Gyre is compared with.
var peers = []string{"transformers", "vllm", "llama", "trl", "ragen"}

// options are the command line.
type options struct {
	gyre.Options // of Gyre's own worker; Model, Threads and On.Device are those of all programs

	peersDir, baselines string
	repeats             int
	quick, baseline     bool
	only, peers         []string
	pythons             map[string]string
	json, markdown      string
	types               string // "all", or "f32" alone
	limit               time.Duration
}

func parse(verb string, args []string, out io.Writer) (options, error) {
	o := options{pythons: map[string]string{}}
	f := flag.NewFlagSet("bench "+verb, flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.Model, "model", "models/smollm2-135m-instruct",
		"Hugging Face `DIR` of the model (scripts/get-smollm2.sh makes it)")
	f.IntVar(&o.Threads, "threads", runtime.NumCPU(), "`N` threads for every program")
	if verb != "check" {
		f.StringVar(&o.On.Device, "device", "cpu", "compute on `NAME`: cpu, cuda (Gyre, transformers, vLLM and TRL "+
			"there), or aten, which is Gyre's GPU code on the CPU")
	}
	if verb == workerVerb {
		f.StringVar((*string)(&o.On.Compute), "dtype", "float32", "`TYPE` of the arithmetic")
		f.BoolVar(&o.On.Frozen, "frozen", false, "hold the model for sampling and scoring alone")
		f.StringVar(&o.Server, "server", "", "measure the server of `PROGRAM`")
		f.IntVar(&o.Speculate, "speculate", torch.SpeculativeTokens, "try up to `N` proposed tokens at once")
		f.IntVar(&o.Staleness, "staleness", 0, "train on batches of environments that wait up to `N` steps after them")
		f.IntVar(&o.Ranks, "ranks", 1, "train in `N` processes")
		return o, o.read(f, args)
	}
	f.StringVar(&o.types, "types", "", "`TYPES` to measure in: f32, or all (also every program's 16-bit types); "+
		"default all, with -quick f32")
	f.StringVar(&o.baselines, "baselines", "scripts/bench/baselines", "`DIR` of the baselines")
	f.IntVar(&o.repeats, "repeats", 0, "`N` measurements of every case; 0 = 3, with -quick 1, for check 5")
	f.Func("only", "`NAMES` of cases or kinds of cases "+
		"(generate/16,rewrite,rollout,serve,logprobs,update,analysis,grpo,ranks,waiting,environments)", names(&o.only))
	f.DurationVar(&o.limit, "limit", 15*time.Minute, "`TIME` that a program may take for one task")
	if verb == "compare" {
		o.peers = peers
		f.BoolVar(&o.quick, "quick", false, "fewer cases, once each: below five minutes on two cores")
		f.BoolVar(&o.baseline, "write-baseline", false, "write this machine's baseline")
		f.Func("peers", "`NAMES` of the programs to compare with; none = Gyre alone (default all: "+
			strings.Join(peers, ",")+")", names(&o.peers))
		f.StringVar(&o.peersDir, "peers-dir", os.Getenv("GYRE_BENCH_PEERS"),
			"`DIR` made by scripts/bench/setup-peers.sh (GYRE_BENCH_PEERS)")
		f.Func("python", "`NAME=PATH` of a program's Python; may be repeated", func(value string) error {
			name, path, ok := strings.Cut(value, "=")
			if !ok || !slices.Contains(peers, name) {
				return fmt.Errorf("expected NAME=PATH with one of %s", strings.Join(peers, ", "))
			}
			o.pythons[name] = path
			return nil
		})
		f.StringVar(&o.json, "json", "", "write every sample to `FILE`")
		f.StringVar(&o.markdown, "markdown", "", "write the tables to `FILE`, between the marks <!-- bench --> if it "+
			"has them")
	}
	if err := o.read(f, args); err != nil {
		return o, err
	}
	switch {
	case o.repeats != 0:
	case o.quick:
		o.repeats = 1
	default:
		o.repeats = map[string]int{"check": 5, "compare": 3}[verb]
	}
	if o.types == "" {
		if o.types = "all"; o.quick {
			o.types = "f32"
		}
	}
	return o, o.check()
}

func names(into *[]string) func(string) error {
	return func(value string) error {
		*into = strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
		return nil
	}
}

func (o *options) read(f *flag.FlagSet, args []string) error {
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q (-help lists the flags)", f.Arg(0))
	}
	if err := o.On.Check(); err != nil {
		return fmt.Errorf("-device: %w", err)
	}
	return nil
}

func (o *options) check() error {
	if o.types != "all" && o.types != "f32" {
		return fmt.Errorf("-types is %q, expected all or f32", o.types)
	}
	if o.Threads < 1 || o.repeats < 1 {
		return fmt.Errorf("-threads is %d and -repeats %d: expected at least 1 of each", o.Threads, o.repeats)
	}
	if slices.Equal(o.peers, []string{"none"}) {
		o.peers = nil
	}
	for _, name := range o.peers {
		if !slices.Contains(peers, name) {
			return fmt.Errorf("-peers: unknown program %q, expected some of %s, or none", name,
				strings.Join(peers, ", "))
		}
	}
	for _, name := range o.only {
		if !slices.ContainsFunc(work.Cases(), func(c work.Case) bool { return within(c.Name, name) }) {
			return fmt.Errorf("-only: there is no case %q", name)
		}
	}
	return nil
}

// includes reports whether -only, or its absence, chooses a case.
func (o *options) includes(name string) bool {
	return len(o.only) == 0 || slices.ContainsFunc(o.only, func(chosen string) bool { return within(name, chosen) })
}

// within reports whether a case is the chosen one or one of its kind: "generate/16" is within "generate".
func within(name, chosen string) bool { return name == chosen || strings.HasPrefix(name, chosen+"/") }
