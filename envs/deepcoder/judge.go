package deepcoder

import (
	"context"
	"encoding/json"
	"math"
	"reflect"
	"strings"

	"gyre/envs/sandbox"
)

// judge runs a program against tests and says how many it passes, and how the first that it fails ended ("" if it
// passes all, "wrong" for a wrong result).
func judge(ctx context.Context, box *sandbox.Sandbox, program string, tests []test) (passed int, failure string,
	err error) {
	job := sandbox.Job{Program: program, Calls: make([]sandbox.Call, len(tests))}
	for i, t := range tests {
		job.Calls[i] = t.call
	}
	outcomes, err := box.Run(ctx, job)
	if err != nil {
		return 0, "", err
	}
	for i, o := range outcomes {
		ok := o.Status == sandbox.OK && tests[i].accepts(o)
		switch {
		case ok:
			passed++
		case failure == "" && o.Status == sandbox.OK:
			failure = "wrong"
		case failure == "":
			failure = string(o.Status)
		}
	}
	return passed, failure, nil
}

// accepts compares what a call did with what was expected.
func (t test) accepts(o sandbox.Outcome) bool {
	if !t.function {
		return sameText(o.Stdout, t.stdout)
	}
	var value any
	if len(o.Value) == 0 || json.Unmarshal(o.Value, &value) != nil {
		return false
	}
	return sameValue(value, t.value)
}

// sameText compares line by line; spaces at the ends of lines and empty lines at the end of the text do not count.
func sameText(a, b string) bool {
	return trimmed(a) == trimmed(b)
}

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
		y, ok := number(b)
		return ok && (x == y || x != math.Trunc(x) && math.Abs(x-y) <= 1e-6*max(1, math.Abs(x), math.Abs(y)))
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !sameValue(x[i], y[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for key, value := range x {
			other, ok := y[key]
			if !ok || !sameValue(value, other) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}

// number reads a number of a data set, whose reader may keep whole ones apart.
func number(value any) (float64, bool) {
	switch v := value.(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	case int:
		return float64(v), true
	case json.Number:
		x, err := v.Float64()
		return x, err == nil
	}
	return 0, false
}
