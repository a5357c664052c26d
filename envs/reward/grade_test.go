package reward

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"gyre/internal/answer"
)

// rows decodes a file of JSON lines.
func rows[T any](t testing.TB, path string) []T {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var list []T
	for scan := bufio.NewScanner(f); scan.Scan(); {
		var row T
		if err := json.Unmarshal(scan.Bytes(), &row); err != nil {
			t.Fatalf("%s line %d: %v", path, len(list)+1, err)
		}
		list = append(list, row)
	}
	return list
}

// The verdicts are those of the MATH benchmark's own code.
func TestStrictEquality(t *testing.T) {
	for _, c := range rows[struct {
		Pred, Gold, Why string
		Equal           bool
	}](t, "testdata/math_cases.jsonl") {
		if v := GradeAnswer(c.Pred, c.Gold, Strict); v.Correct != c.Equal {
			t.Errorf("%q = %q: %v, want %v (%s); rules %v", c.Pred, c.Gold, v.Correct, c.Equal, c.Why, v.Rules)
		}
		if v := GradeAnswer(c.Gold, c.Pred, Strict); v.Correct != c.Equal {
			t.Errorf("%q = %q: the verdict changes when the sides are swapped", c.Gold, c.Pred)
		}
		apart := strings.HasPrefix(c.Why, "different units") || c.Pred == "" || c.Gold == ""
		if got := GradeAnswer(c.Pred, c.Gold, Lenient).Correct; c.Equal && got == apart {
			t.Errorf("%q = %q: lenient says %v, strict that they are equal", c.Pred, c.Gold, got)
		}
	}
}

func TestBoxes(t *testing.T) {
	for _, c := range rows[struct {
		Text   string
		Expect *string
	}](t, "testdata/boxed_cases.jsonl") {
		got, found := answer.Boxed(c.Text)
		if found != (c.Expect != nil) || found && got != *c.Expect {
			t.Errorf("%q: %q, %v", c.Text, got, found)
		}
	}
	for _, text := range []string{`\boxed\text{5}`, `\boxed[5]{6}`, `\boxed{`, `\fbox{`} {
		if got, found := answer.Boxed(text); found {
			t.Errorf("%q: %q is no answer", text, got)
		}
	}
}

func TestSeedFunctionValues(t *testing.T) {
	near := func(got any, want float64) bool { return math.Abs(float64(got.(Float))-want) <= 1e-12 }
	for i, c := range rows[struct {
		Kind, Text, Gold string
		Chars            int
		MaxLength        *float64 `json:"max_length"`
		Expect           json.RawMessage
	}](t, "testdata/reward_cases.jsonl") {
		a := Arguments{Solution: &c.Text, Truth: c.Gold, MaxLength: c.MaxLength}
		name := map[string]string{"format": "compute_format_score", "length": "compute_length_score",
			"length_text": "compute_length_score", "components": "compute_component_scores"}[c.Kind]
		if c.Kind == "length" {
			ascii := strings.Repeat("a", c.Chars)
			a.Solution = &ascii
		}
		value, err := Call(name, a)
		if err != nil {
			t.Errorf("case %d: %v", i, err)
			continue
		}
		if c.Kind != "components" {
			var want float64
			if err := json.Unmarshal(c.Expect, &want); err != nil || !near(value, want) {
				t.Errorf("case %d, %s of %.40q: %v, want %v", i, name, c.Text, value, want)
			}
			continue
		}
		var want, got map[string]any
		text, err := json.Marshal(value)
		if err != nil || json.Unmarshal(text, &got) != nil || json.Unmarshal(c.Expect, &want) != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Errorf("case %d: keys of %v, want those of %v", i, got, want)
		}
		for key, w := range want {
			if x, is := w.(float64); is && math.Abs(got[key].(float64)-x) > 1e-12 {
				t.Errorf("case %d, %s: %v, want %v", i, key, got[key], x)
			}
		}
	}
}

// The seed's functions keep what was wrong with them.
func TestSeedFunctionDefects(t *testing.T) {
	box := func(s string) Arguments { return Arguments{Solution: &s} }
	a := box(`\boxed{\dfrac{1}{2}}`)
	a.Truth = `\dfrac{1}{2}`
	if got, err := Call("compute_correctness_score", a); err != nil || got != Float(0) {
		t.Errorf("a gold answer that is not normalised: %v, %v, want 0", got, err)
	}
	if !GradeReply(*a.Solution, `\dfrac{1}{2}`, Strict).Correct {
		t.Error("our own grading must normalise the gold answer")
	}
	a = box(`\boxed{}`)
	a.Truth = ""
	if got, err := Call("compute_correctness_score", a); err != nil || got != Float(1) {
		t.Errorf("an empty box and an empty gold: %v, %v, want 1", got, err)
	}
	for name, text := range map[string]string{"extract_solution": `\boxed{\frac}`, "remove_boxed": `a \boxed b`} {
		if got, err := Call(name, Arguments{Text: &text}); err == nil {
			t.Errorf("%s: %v, want an exception", name, got)
		}
	}
	for _, name := range []string{"last_boxed_only_string", "extract_solution"} {
		none := "none"
		if got, err := Call(name, Arguments{Text: &none}); err != nil || got.(*string) != nil {
			t.Errorf("%s without a box: %v, %v, want None", name, got, err)
		}
	}
	if _, err := Call("compute_format_scor", Arguments{}); err == nil ||
		!strings.Contains(err.Error(), "did you mean compute_format_score?") {
		t.Errorf("misspelt name: %v", err)
	}
}

// Every gold answer of MATH-500 scores when it is given back word for word.
func TestGoldsScore(t *testing.T) {
	golds := rows[string](t, "testdata/math500_golds.jsonl")
	if len(golds) != 500 {
		t.Fatalf("%d golds", len(golds))
	}
	for i, gold := range golds {
		for _, mode := range []Mode{Strict, Lenient} {
			if v := GradeReply(`Therefore \boxed{`+gold+`}.`, gold, mode); !v.Correct {
				t.Errorf("gold %d %q, %s: not correct, rules %v", i, gold, mode, v.Rules)
			}
		}
	}
}

func TestNothingScoresWithoutAnAnswer(t *testing.T) {
	for _, reply := range []string{"", "no box", `\boxed{}`, `\boxed{ }`, `\boxed `, "\\boxed{\n}", `\boxed{\right}`,
		`\boxed{\!}`,
		"\\boxed{\u200b}", `\fbox{}`, `\boxed{\text{ m}}`} {
		for _, gold := range []string{"", " ", "x=", "0", `\left`, `\text{ cm}`} {
			for _, mode := range []Mode{Strict, Lenient} {
				if v := GradeReply(reply, gold, mode); v.Correct {
					t.Errorf("%q scores against %q in %s mode: %v", reply, gold, mode, v.Rules)
				}
			}
		}
	}
}

// Words that the rules take for units are still answers.
func TestAnswersThatLookLikeUnits(t *testing.T) {
	if !GradeReply(`\boxed{\text{ none}}`, `\text{ none}`, Strict).Correct {
		t.Error("the gold answer word for word does not score")
	}
	if GradeReply(`\boxed{\text{ some}}`, `\text{ none}`, Strict).Correct {
		t.Error("another word scores")
	}
}

func FuzzGrade(f *testing.F) {
	for _, s := range []string{`\frac`, `\frac{1`, `\sqrt`, `\boxed{\frac}`, `{{{}`, "αβ=5", `\frac1`, `1/2`, "\xff",
		`\text{ x`, `((1,2]`,
		`x^{y^{z}}`, `\begin{pmatrix}1&2\\3\end{pmatrix}`, `1\pm2`, `\{1,2\}`, `9^{9^{9^9}}`, `\sqrt[3]{-8}`} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		begin := time.Now()
		defer func() {
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("%q, %q: %v", a, b, took)
			}
		}()
		for _, mode := range []Mode{Strict, Lenient} {
			if x, y := GradeAnswer(a, b, mode).Correct, GradeAnswer(b, a, mode).Correct; x != y {
				t.Errorf("%q, %q, %s: %v, swapped %v", a, b, mode, x, y)
			}
			if !GradeAnswer(a, a, mode).Correct {
				t.Errorf("%q does not equal itself in %s mode", a, mode)
			}
			GradeReply(a, b, mode)
			GradeReply(`\boxed{`+a+`}`, b, mode)
		}
		for _, name := range FunctionNames() {
			_, _ = Call(name, Arguments{Solution: &a, Text: &a, Truth: b})
		}
	})
}

// Strict joins numbers as the MATH benchmark does, lenient does not.
func TestLenientKeepsNumbersApart(t *testing.T) {
	for _, c := range [][2]string{{"11/2", "1 1/2"}, {"21/4", "2 1/4"}, {"34", "3 4"}, {"1,234", "1, 234"}} {
		if !GradeAnswer(c[0], c[1], Strict).Correct || GradeAnswer(c[0], c[1], Lenient).Correct {
			t.Errorf("%q: strict %+v, lenient %+v", c, GradeAnswer(c[0], c[1], Strict), GradeAnswer(c[0], c[1], Lenient))
		}
	}
}
