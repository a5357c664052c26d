package algebra

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

func TestEqual(t *testing.T) {
	datadriven.RunTest(t, "testdata/equal", func(t *testing.T, d *datadriven.TestData) string {
		return eachLine(d, func(line string) string {
			a, b, found := strings.Cut(line, " ≟ ")
			if !found {
				d.Fatalf(t, "%q: expected A ≟ B", line)
			}
			what, equal := Equal(Trim(a), Trim(b))
			if back, same := Equal(Trim(b), Trim(a)); back != what || same != equal {
				t.Errorf("%s is %s (%v), the other way round %s (%v)", line, what, equal, back, same)
			}
			if !equal {
				what = "different"
			}
			return what
		})
	})
}

func TestArithmetic(t *testing.T) {
	datadriven.RunTest(t, "testdata/arithmetic", func(t *testing.T, d *datadriven.TestData) string {
		return eachLine(d, func(line string) string {
			value, used, ok := Arithmetic(line)
			if !ok {
				return "none"
			}
			return fmt.Sprintf("%s of %v", value.RatString(), used)
		})
	})
}

// eachLine gives the lines of a case, each behind what f makes of it.
func eachLine(d *datadriven.TestData, f func(line string) string) string {
	var out strings.Builder
	for line := range strings.SplitSeq(d.Input, "\n") {
		out.WriteString(strings.TrimSpace(f(line)+": "+line) + "\n")
	}
	return out.String()
}
