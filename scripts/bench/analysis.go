package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"gyre/scripts/bench/report"
)

// analysisCost runs the trainer's own benchmark: what a gradient analysis costs beside a plain update.
func analysisCost(ctx context.Context, log io.Writer) ([]report.Analysis, error) {
	fmt.Fprintln(log, "gradient analysis: go test ./orchestrate/loop/trainer -bench .")
	command := exec.CommandContext(ctx, "go", "test", "./orchestrate/loop/trainer", "-run", "^$", "-bench", ".", "-benchtime", "2x")
	out, err := command.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go test: %w: %s", err, bytes.TrimSpace(out))
	}
	return readBenchmarks(string(out))
}

// benchmarkLine is "BenchmarkUpdate/plain-2   2   123456 ns/op", without the number of processors.
var benchmarkLine = regexp.MustCompile(`^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+([0-9.]+) ns/op`)

// readBenchmarks reads go test's output. The plain update, which the others are compared with, comes first.
func readBenchmarks(text string) ([]report.Analysis, error) {
	var first, rest []report.Analysis
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		m := benchmarkLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		ns, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, err
		}
		row := report.Analysis{Name: strings.ReplaceAll(m[1], "_", " "), Seconds: ns / 1e9}
		if row.Name == "Update/plain" {
			first = append(first, row)
		} else {
			rest = append(rest, row)
		}
	}
	if first == nil {
		return nil, fmt.Errorf("go test printed no line for BenchmarkUpdate/plain")
	}
	return append(first, rest...), nil
}
