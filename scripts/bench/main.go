package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"gyre/orchestrate/run/metrics"
	"gyre/scripts/bench/gyre"
	"gyre/scripts/bench/report"
	"gyre/scripts/bench/work"
	"gyre/torch"
)

// Exit codes besides 0.
const (
	exitFailed = 1 // the run failed, a floor was missed, or the check found a regression
	exitUsage  = 2 // wrong arguments, or no baseline for this machine
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	verb := "compare"
	if len(args) > 0 && (args[0] == "check" || args[0] == workerVerb) {
		verb, args = args[0], args[1:]
	}
	o, err := parse(verb, args, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		return exitUsage
	}
	switch verb {
	case workerVerb:
		err = gyre.Serve(o.model, torch.Placement{Device: o.device, Compute: torch.Compute(o.dtype), Frozen: o.frozen}, o.threads, os.Stdin, os.Stdout, os.Stderr)
	case "check":
		err = check(ctx, o)
	default:
		err = compare(ctx, o)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && verb == "check":
		fmt.Fprintln(os.Stderr, "bench:", err)
		return exitUsage
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		return exitFailed
	}
	return 0
}

// compare runs all programs and writes what was asked for.
func compare(ctx context.Context, o options) error {
	console := metrics.NewConsole(os.Stderr)
	b, err := newBench(o, console)
	if err != nil {
		return err
	}
	defer b.close()
	if err := b.run(ctx, b.selected()); err != nil {
		return err
	}
	if o.includes("analysis") && !o.quick && !b.report.OnDevice() {
		if b.report.Analysis, err = analysisCost(ctx, console); err != nil {
			fmt.Fprintln(console, "gradient analysis: SKIPPED:", err)
		}
	}
	if o.includes("ranks") && !o.quick {
		if b.report.Ranks, err = ranksCost(ctx, o, b.material, console); err != nil {
			fmt.Fprintln(console, "ranks: SKIPPED:", err)
		}
	}
	if o.includes("environments") {
		if b.report.Environments, err = environments(ctx, o, console); err != nil {
			return err
		}
	}
	fmt.Print(b.report.Markdown())
	if err := o.write(b.report); err != nil {
		return err
	}
	return shortfall(b.report.Missed())
}

// shortfall is the error of a benchmark that missed floors.
func shortfall(missed []string) error {
	if len(missed) == 0 {
		return nil
	}
	return fmt.Errorf("%d floors not reached:\n  %s", len(missed), strings.Join(missed, "\n  "))
}

// check measures Gyre alone and compares it with the baseline of this kind of machine. What is unclear is measured once more.
func check(ctx context.Context, o options) error {
	console := metrics.NewConsole(os.Stderr)
	o.peers = []string{}
	b, err := newBench(o, console)
	if err != nil {
		return err
	}
	defer b.close()
	path := report.BaselinePath(o.baselines, b.report.CPU, o.threads)
	baseline, err := report.ReadBaseline(path)
	if err != nil {
		return err
	}
	cases := slices.DeleteFunc(b.selected(), func(c work.Case) bool { return !c.InCheck() || baseline.Cases[c.Name].Shares == nil })
	if len(cases) == 0 {
		return fmt.Errorf("%s has none of the cases that are to be checked", path)
	}
	slower, larger := 0, 0
	for attempt := range 2 {
		if err := b.run(ctx, cases); err != nil {
			return err
		}
		cases = slices.DeleteFunc(cases, func(c work.Case) bool {
			clear := true
			for _, dtype := range report.Types(report.Subject) {
				name := report.CaseIn(c.Name, dtype)
				expected, ok := baseline.Cases[name]
				if !ok {
					continue
				}
				comparison, err := report.Decide(expected.Shares, b.report.Shares(c.Name, dtype))
				if err != nil {
					fmt.Printf("%-26s %v\n", name, err)
					slower++
					continue
				}
				if comparison.Verdict == report.Unclear && attempt == 0 {
					clear = false
				}
				memory, fine := report.CompareMemory(expected.Peaks, b.report.Peaks(c.Name, dtype))
				fmt.Printf("%-26s %s; %s\n", name, comparison, memory)
				if comparison.Verdict == report.Regression {
					slower++
				}
				if !fine {
					larger++
				}
			}
			return clear
		})
		if len(cases) == 0 {
			break
		}
		if attempt == 0 {
			fmt.Fprintln(console, "some cases are unclear: measuring them once more")
		}
	}
	if slower > 0 || larger > 0 {
		return fmt.Errorf("beside %s %d cases are slower than %.0f %%, and %d take more memory than 1/%.1f", path, slower, 100*report.Tolerated, larger,
			report.Tolerated)
	}
	return nil
}
