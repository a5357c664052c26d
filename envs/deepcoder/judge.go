package deepcoder

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"

	"gyre/envs/sandbox"
)

// wrong is how a test ends whose program ran and gave a wrong result.
const wrong sandbox.Status = "a wrong result"

// judge runs a program against tests and says how many it passes, and how the first that it fails ended ("" if it
// passes all).
func judge(ctx context.Context, box *sandbox.Sandbox, program string, tests []test) (passed int,
	failure sandbox.Status, err error) {
	job := sandbox.Job{Program: program, Calls: make([]sandbox.Call, len(tests))}
	for i, t := range tests {
		job.Calls[i] = t.call
	}
	outcomes, err := box.Run(ctx, job)
	for i, o := range outcomes {
		status := o.Status
		if status == sandbox.OK && tests[i].accepts(o) {
			passed++
			continue
		}
		if status == sandbox.OK {
			status = wrong
		}
		failure = cmp.Or(failure, status)
	}
	return passed, failure, err
}

// accepts compares what a call did with what was expected.
func (t test) accepts(o sandbox.Outcome) bool {
	if t.call.Function == "" {
		return trimmed(o.Stdout) == trimmed(t.stdout)
	}
	var value any
	return json.Unmarshal(o.Value, &value) == nil && sameValue(value, t.value)
}

// trimmed is a text without spaces at the ends of its lines and empty lines at its end.
func trimmed(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \t\r")
	}
	return strings.Join(lines, "\n")
}

// sameValue compares JSON values. Numbers that are not whole are equal up to rounding.
func sameValue(a, b any) bool {
	switch x := a.(type) {
	case float64:
		y, ok := b.(float64)
		return ok && (x == y || x != math.Trunc(x) && math.Abs(x-y) <= 1e-6*max(1, math.Abs(x), math.Abs(y)))
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, sameValue)
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && maps.EqualFunc(x, y, sameValue)
	}
	return a == b
}
