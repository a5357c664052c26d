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
		on := torch.Placement{Device: o.device, Compute: torch.Compute(o.dtype), Frozen: o.frozen}
		err = gyre.Serve(o.model, on, o.threads, os.Stdin, os.Stdout, os.Stderr)
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
	for _, extra := range []struct {
		name    string
		skipped bool
		measure func() ([]report.Pair, error)
	}{
		{"analysis", o.quick || b.report.OnDevice(),
			func() ([]report.Pair, error) { return analysisCost(ctx, console) }},
		{"ranks", o.quick, func() ([]report.Pair, error) { return ranksCost(ctx, o, b.material, console) }},
		{"environments", false, func() ([]report.Pair, error) { return environments(ctx, o, console) }},
	} {
		if !o.includes(extra.name) || extra.skipped {
			continue
		}
		pairs, err := extra.measure()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			fmt.Fprintf(console, "%s: SKIPPED: %v\n", extra.name, err)
		}
		b.report.Pairs = append(b.report.Pairs, pairs...)
	}
	fmt.Print(b.report.Markdown())
	if err := o.write(b.report); err != nil {
		return err
	}
	if missed := b.report.Missed(); len(missed) > 0 {
		return fmt.Errorf("%d floors not reached:\n  %s", len(missed), strings.Join(missed, "\n  "))
	}
	return nil
}

// check measures Gyre alone and compares it with the baseline of this kind of machine. What is unclear is measured
// once more.
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
	cases := slices.DeleteFunc(b.selected(), func(c work.Case) bool {
		return !c.InCheck() ||
			baseline.Cases[c.Name].Shares == nil
	})
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
				text, verdict, more, known := baseline.Check(b.report, c.Name, dtype)
				if !known {
					continue
				}
				fmt.Printf("%-26s %s\n", report.CaseIn(c.Name, dtype), text)
				if verdict == report.Unclear && attempt == 0 {
					clear = false
				}
				if verdict == report.Regression {
					slower++
				}
				if more {
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
		return fmt.Errorf("beside %s %d cases are slower than %.0f %%, and %d take more memory than 1/%.1f", path,
			slower,
			100*report.Tolerated, larger, report.Tolerated)
	}
	return nil
}
