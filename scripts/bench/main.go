// The bench program runs Gyre and the programs that it is compared with on the same work, and says how they compare.
//
//	bench [flags]          everything; see -help
//	bench check [flags]    Gyre alone against the baseline of this kind of machine; exit code 1 on a regression
//
// Each program runs in a worker process of its own (packages worker and gyre, scripts in peers/). Workers of a session
// live side by side; for every case they take turns, A B C A B C, so that whatever else the machine does falls on all
// of them alike, and ratios are taken repeat by repeat. docs/benchmarks.md says how to read the result.
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

	"gyre/scripts/bench/gyre"
	"gyre/scripts/bench/report"
	"gyre/scripts/bench/work"
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
	code, err := exitFailed, error(nil)
	if len(args) == 2 && args[0] == workerVerb {
		err = gyre.Serve(args[1], os.Stdin, os.Stdout, os.Stderr)
	} else {
		var o options
		switch o, err = parse(args, os.Stderr); {
		case errors.Is(err, flag.ErrHelp):
			return 0
		case err != nil:
			code = exitUsage
		case o.check:
			if err = check(ctx, o); errors.Is(err, fs.ErrNotExist) {
				code = exitUsage
			}
		default:
			err = compare(ctx, o)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return code
	}
	return 0
}

// compare runs all programs and writes what was asked for.
func compare(ctx context.Context, o options) error {
	b, err := newBench(ctx, o)
	if err != nil {
		return err
	}
	defer b.probe.Close()
	if err := b.run(ctx, b.selected()); err != nil {
		return err
	}
	fmt.Print(b.report.Markdown())
	if err := o.write(b.report); err != nil {
		return err
	}
	if missed := b.report.Missed(); len(missed) > 0 {
		return fmt.Errorf("%d requirements not met:\n  %s", len(missed), strings.Join(missed, "\n  "))
	}
	return nil
}

// write writes the files that were asked for.
func (o *options) write(r *report.Report) error {
	var problems []error
	if o.json != "" {
		problems = append(problems, report.WriteJSON(o.json, r))
	}
	if o.baseline {
		path := report.BaselinePath(o.baselines, r.CPU, r.Threads)
		problems = append(problems, report.WriteJSON(path, report.NewBaseline(r)))
	}
	return errors.Join(problems...)
}

// check measures Gyre alone and compares it with the baseline of this kind of machine. What is unclear is measured
// once more.
func check(ctx context.Context, o options) error {
	b, err := newBench(ctx, o)
	if err != nil {
		return err
	}
	defer b.probe.Close()
	path := report.BaselinePath(o.baselines, b.report.CPU, o.Threads)
	baseline, err := report.ReadBaseline(path)
	if err != nil {
		return err
	}
	cases := slices.DeleteFunc(b.selected(), func(c work.Case) bool {
		return !c.InCheck() || baseline.Cases[c.Name].Shares == nil
	})
	if len(cases) == 0 {
		return fmt.Errorf("%s has none of the cases that are to be checked", path)
	}
	slower, larger := 0, 0
	for _, last := range []bool{false, true} {
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
				clear = clear && (verdict != report.Unclear || last)
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
		fmt.Fprintln(b.console, "some cases are unclear: measuring them once more")
	}
	if slower > 0 || larger > 0 {
		return fmt.Errorf("beside %s %d cases are slower than %.0f %%, and %d take more memory than 1/%.1f", path,
			slower, 100*report.Tolerated, larger, report.Tolerated)
	}
	return nil
}
