package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"gyre/scripts/bench/gyre"
	"gyre/scripts/bench/work"
)

// peers are the programs that Gyre is compared with.
var peers = []string{"transformers", "vllm", "llama", "trl", "ragen"}

// options are the command line.
type options struct {
	gyre.Options // of Gyre's own worker; Model, Threads and On.Device are those of all programs

	check               bool // Gyre against a baseline
	peersDir, baselines string
	repeats             int
	quick, baseline     bool
	only, peers         []string
	json                string
	types               string // "all", or "f32" alone
}

func parse(args []string, out io.Writer) (options, error) {
	o := options{check: len(args) > 0 && args[0] == "check"}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.Model, "model", "models/smollm2-135m-instruct",
		"Hugging Face `DIR` of the model (scripts/get-smollm2.sh makes it)")
	f.IntVar(&o.Threads, "threads", runtime.NumCPU(), "`N` threads for every program")
	f.StringVar(&o.types, "types", "", "`TYPES` to measure in: f32, or all (also every program's 16-bit types); "+
		"default all, with -quick f32")
	f.StringVar(&o.baselines, "baselines", "scripts/bench/baselines", "`DIR` of the baselines")
	f.IntVar(&o.repeats, "repeats", 0, "`N` measurements of every case; 0 = 3, with -quick 1, for check 5")
	f.Func("only", "`NAMES` of cases or kinds of cases "+
		"(generate/16,rewrite,rollout,serve,logprobs,update,lora,grpo,ranks,passes,waiting,environments)", names(&o.only))
	repeats := 5
	if o.check {
		args = args[1:]
	} else {
		repeats, o.peers = 3, peers
		f.StringVar(&o.On.Device, "device", "cpu", "compute on `NAME`: cpu, cuda (Gyre, transformers, vLLM and TRL "+
			"there), or aten, which is Gyre's GPU code on the CPU")
		f.BoolVar(&o.quick, "quick", false, "fewer cases, once each: below five minutes on two cores")
		f.BoolVar(&o.baseline, "write-baseline", false, "write this machine's baseline")
		f.Func("peers", "`NAMES` of the programs to compare with; none = Gyre alone (default all: "+
			strings.Join(peers, ",")+")", names(&o.peers))
		f.StringVar(&o.peersDir, "peers-dir", os.Getenv("GYRE_BENCH_PEERS"), "`DIR` made by "+
			"scripts/bench/setup-peers.sh: DIR/NAME is a program's virtual environment (GYRE_BENCH_PEERS)")
		f.StringVar(&o.json, "json", "", "write every sample to `FILE`")
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.quick {
		repeats, o.types = 1, cmp.Or(o.types, "f32")
	}
	o.repeats, o.types = cmp.Or(o.repeats, repeats), cmp.Or(o.types, "all")
	if slices.Equal(o.peers, []string{"none"}) {
		o.peers = nil
	}
	return o, o.validate(f.Args())
}

func names(into *[]string) func(string) error {
	return func(value string) error {
		*into = strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
		return nil
	}
}

func (o *options) validate(rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q (-help lists the flags)", rest[0])
	}
	if err := o.On.Check(); err != nil {
		return fmt.Errorf("-device: %w", err)
	}
	if o.types != "all" && o.types != "f32" {
		return fmt.Errorf("-types is %q, expected all or f32", o.types)
	}
	if o.Threads < 1 || o.repeats < 1 {
		return fmt.Errorf("-threads is %d and -repeats %d: expected at least 1 of each", o.Threads, o.repeats)
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
