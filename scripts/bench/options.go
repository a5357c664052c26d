package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"gyre/internal/atomicfile"
	"gyre/scripts/bench/report"
	"gyre/scripts/bench/work"
	"gyre/torch"
)

// peers are the programs that Gyre is compared with.
var peers = []string{"transformers", "vllm", "llama", "trl"}

// options are the command line.
type options struct {
	model, peersDir, baselines string
	threads, repeats           int
	quick, baseline            bool
	only, peers                []string
	pythons                    map[string]string
	json, markdown             string
	types                      string // "all", or "f32" alone
	device                     string // that models compute on: "cpu", or one of model.device
	dtype                      string // of Gyre's own worker
	frozen                     bool
	limit                      time.Duration
}

func parse(verb string, args []string, out io.Writer) (options, error) {
	o := options{pythons: map[string]string{}}
	f := flag.NewFlagSet("bench "+verb, flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.model, "model", "models/smollm2-135m-instruct",
		"Hugging Face `DIR` of the model (scripts/get-smollm2.sh makes it)")
	f.IntVar(&o.threads, "threads", runtime.NumCPU(), "`N` threads for every program")
	if verb != "check" {
		f.StringVar(&o.device, "device", "cpu", "compute on `NAME`: cpu, cuda (Gyre, transformers, vLLM and TRL "+
			"there), or aten, which is Gyre's GPU code on the CPU")
	}
	var only, chosen string
	if verb == workerVerb {
		f.StringVar(&o.dtype, "dtype", "float32", "`TYPE` of the arithmetic")
		f.BoolVar(&o.frozen, "frozen", false, "hold the model for sampling and scoring alone")
	} else {
		f.StringVar(&o.types, "types", "", "`TYPES` to measure in: f32, or all (also every program's 16-bit types); "+
			"default all, with -quick f32")
	}
	if verb != workerVerb {
		f.StringVar(&o.baselines, "baselines", "scripts/bench/baselines", "`DIR` of the baselines")
		f.IntVar(&o.repeats, "repeats", 0, "`N` measurements of every case; 0 = 3, with -quick 1, for check 5")
		f.StringVar(&only, "only", "", "`NAMES` of cases or kinds of cases "+
			"(generate/16,rollout,logprobs,update,grpo,analysis,ranks,environments)")
		f.DurationVar(&o.limit, "limit", 15*time.Minute, "`TIME` that a program may take for one task")
	}
	if verb == "compare" {
		f.BoolVar(&o.quick, "quick", false, "fewer cases, once each: below five minutes on two cores")
		f.BoolVar(&o.baseline, "write-baseline", false, "write this machine's baseline")
		f.StringVar(&chosen, "peers", strings.Join(peers, ","),
			"`NAMES` of the programs to compare with; none = Gyre alone")
		f.StringVar(&o.peersDir, "peers-dir", os.Getenv("GYRE_BENCH_PEERS"),
			"`DIR` made by scripts/bench/setup-peers.sh (GYRE_BENCH_PEERS)")
		f.Func("python", "`NAME=PATH` of a program's Python; may be repeated", func(value string) error {
			name, path, ok := strings.Cut(value, "=")
			if known := append(slices.Clone(peers), "ragen"); !ok || !slices.Contains(known, name) {
				return fmt.Errorf("expected NAME=PATH with one of %s", strings.Join(known, ", "))
			}
			o.pythons[name] = path
			return nil
		})
		f.StringVar(&o.json, "json", "", "write every sample to `FILE`")
		f.StringVar(&o.markdown, "markdown", "", "write the tables to `FILE`, between the marks <!-- bench --> if it "+
			"has them")
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q (-help lists the flags)", f.Arg(0))
	}
	if o.repeats == 0 {
		o.repeats = map[string]int{"check": 5, "compare": 3}[verb]
		if o.quick {
			o.repeats = 1
		}
	}
	if o.types == "" {
		if o.types = "all"; o.quick {
			o.types = "f32"
		}
	}
	if verb != workerVerb && o.types != "all" && o.types != "f32" {
		return o, fmt.Errorf("-types is %q, expected all or f32", o.types)
	}
	if err := (torch.Placement{Device: o.device}).Check(); err != nil {
		return o, fmt.Errorf("-device: %w", err)
	}
	if o.threads < 1 || o.repeats < 0 {
		return o, fmt.Errorf("-threads is %d and -repeats %d: expected at least 1 of each", o.threads, o.repeats)
	}
	o.only = list(only)
	if o.peers = list(chosen); chosen == "none" {
		o.peers = nil
	}
	for _, name := range o.peers {
		if !slices.Contains(peers, name) {
			return o, fmt.Errorf("-peers: unknown program %q, expected some of %s, or none", name,
				strings.Join(peers, ", "))
		}
	}
	for _, name := range o.only {
		if !slices.Contains([]string{"analysis", "ranks", "environments"}, name) &&
			!slices.ContainsFunc(work.Cases(), func(c work.Case) bool { return within(c.Name, name) }) {
			return o, fmt.Errorf("-only: there is no case %q", name)
		}
	}
	return o, nil
}

func list(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// includes reports whether -only, or its absence, chooses a case.
func (o options) includes(name string) bool {
	return len(o.only) == 0 || slices.ContainsFunc(o.only, func(chosen string) bool { return within(name, chosen) })
}

// within reports whether a case is the chosen one or one of its kind: "generate/16" is within "generate".
func within(name, chosen string) bool { return name == chosen || strings.HasPrefix(name, chosen+"/") }

// write writes the files that were asked for.
func (o options) write(r *report.Report) error {
	if o.json != "" {
		text, err := json.MarshalIndent(r, "", " ")
		if err != nil {
			return err
		}
		if err := replace(o.json, string(text)+"\n"); err != nil {
			return err
		}
	}
	if o.markdown != "" {
		old, err := os.ReadFile(o.markdown)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		if err := replace(o.markdown, report.Insert(string(old), r.Markdown())); err != nil {
			return err
		}
	}
	if o.baseline {
		return report.NewBaseline(r).Write(report.BaselinePath(o.baselines, r.CPU, r.Threads))
	}
	return nil
}

func replace(path, text string) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
}
