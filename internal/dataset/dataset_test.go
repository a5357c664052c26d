package dataset

import (
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"gyre/internal/hub"
)

func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

const problems = `[{"problem": "What is $1+1$?", "answer": "2", "solution": "\\boxed{2}", "subject": "Algebra", "level": 1, "unique_id": "a/1"},
 {"problem": "Half of $x=1$?", "solution": "It is $\\boxed{\\dfrac{1}{2}}$.", "type": "Prealgebra", "level": "Level 2"}]`

// The prompt, the columns and their order are what the rldynamic project's script writes.
func TestMATHColumns(t *testing.T) {
	table, err := Read(file(t, "m.json", problems))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := MATH(table, []int{1, 0}, "train", BoxedInstruction)
	if err != nil {
		t.Fatal(err)
	}
	want := MATHTraining{Solution: `It is $\boxed{\dfrac{1}{2}}$.`, Subject: "Prealgebra", Level: 2,
		Training: Training{DataSource: "HuggingFaceH4/MATH-500",
			Prompt: []Message{{Role: "user",
				Content: `Half of $x=1$? Let's think step by step and output the final answer in \boxed{your answer here}.`}},
			Ability: "math", RewardModel: RewardModel{"rule", `\dfrac{1}{2}`},
			ExtraInfo: ExtraInfo{"train", 0, `\dfrac{1}{2}`, "Half of $x=1$?"}}}
	if !reflect.DeepEqual(rows[0], want) {
		t.Errorf("got %+v\nwant %+v", rows[0], want)
	}
	path := filepath.Join(t.TempDir(), "train.parquet")
	if err := Write(path, rows); err != nil {
		t.Fatal(err)
	}
	content, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	info, _ := content.Stat()
	opened, err := parquet.OpenFile(content, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	var columns []string
	for _, f := range opened.Schema().Fields() {
		columns = append(columns, f.Name())
	}
	if got := strings.Join(columns, " "); got != "solution subject level unique_id data_source prompt ability "+
		"reward_model extra_info" {
		t.Errorf("columns %s", got)
	}
}

// The prompt and the columns are those of verl's own script for GSM8K.
func TestGSMColumns(t *testing.T) {
	table, err := Read(file(t, "g.jsonl",
		`{"question": "How many?", "answer": "Two and three.\n#### 1,005"}`+"\n"+
			`{"question": "Why?", "answer": "Because."}`+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := GSM(table, []int{0}, "test", " Think.")
	want := Training{DataSource: GSM8K, Prompt: []Message{{Role: "user", Content: "How many? Think."}}, Ability: "math",
		RewardModel: RewardModel{"rule", "1005"},
		ExtraInfo:   ExtraInfo{"test", 0, "Two and three.\n#### 1,005", "How many?"}}
	if err != nil || len(rows) != 1 || !reflect.DeepEqual(rows[0], want) {
		t.Errorf("got %+v (%v)\nwant %+v", rows, err, want)
	}
	if _, err := GSM(table, All(2), "test", ""); err == nil ||
		!strings.Contains(err.Error(), `g.jsonl: row 1 (line 2): expected the columns question and answer`) {
		t.Errorf("an answer without its line: %v", err)
	}
}

// A prepared file reads back the same from each format, and as prompts.
func TestFormatsAgree(t *testing.T) {
	table, err := Read(file(t, "m.json", problems))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := MATH(table, All(2), "test", BoxedInstruction)
	if err != nil {
		t.Fatal(err)
	}
	for _, ending := range Formats {
		path := filepath.Join(t.TempDir(), "rows"+ending)
		if err := Write(path, rows); err != nil {
			t.Fatal(err)
		}
		set, err := Load(path, Fields{})
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range set.Rows {
			if row.Gold != rows[i].RewardModel.GroundTruth || !slices.Equal(row.Prompt, rows[i].Prompt) ||
				row.Source != MATH500 ||
				row.Question != rows[i].ExtraInfo.Question {
				t.Errorf("%s row %d: %+v", ending, i, row)
			}
		}
		if set.Rows[0].ID != "a/1" {
			t.Errorf("%s: id %q", ending, set.Rows[0].ID)
		}
		again, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		part := filepath.Join(t.TempDir(), "part"+ending)
		if err := again.WriteRows(part, []int{1}); err != nil {
			t.Fatal(err)
		}
		if set, err = Load(part, Fields{}); err != nil || len(set.Rows) != 1 || set.Rows[0].Gold != `\dfrac{1}{2}` {
			t.Errorf("%s: %+v, %v", ending, set, err)
		}
	}
}

func TestKnownColumns(t *testing.T) {
	for content, want := range map[string]Row{
		`{"question": "Two ducks?", "answer": "1 + 1 = <<1+1=2>>2\n#### 2,000"}`:                                               {Question: "Two ducks?", Gold: "2000", Source: "x"},
		`{"question": "4 + 3 =", "answer": "7", "metadata": {"source_dataset": "chain_sum"}}`:                                  {Question: "4 + 3 =", Gold: "7", Source: "chain_sum"},
		`{"prompt": [{"role": "user", "content": "Hi"}], "reward_model": {"ground_truth": "5"}, "data_source": "mine"}`:        {Question: "Hi", Gold: "5", Source: "mine"},
		`{"instruction": "Count", "output": 12, "id": 9}`:                                                                      {Question: "Count", Gold: "12", Source: "x", ID: "9"},
		`{"prompt": [{"role": "user", "content": "long"}], "ground_truth": null, "extra_info": {"question": "the short one"}}`: {Question: "the short one", Source: "x"},
	} {
		set, err := Load(file(t, "x.jsonl", content), Fields{})
		if err != nil {
			t.Errorf("%s: %v", content, err)
			continue
		}
		got := set.Rows[0]
		if got.Question != want.Question || got.Gold != want.Gold || got.Source != want.Source || want.ID != "" &&
			got.ID != want.ID {
			t.Errorf("%s: %+v", content, got)
		}
	}
	set, err := Load(file(t, "x.jsonl", `{"q": "Why?", "a": "so"}`),
		Fields{Question: "q", Answer: "a", Suffix: " Say."})
	if err != nil || set.Rows[0].Prompt[0].Content != "Why? Say." || set.Rows[0].Gold != "so" {
		t.Errorf("%+v, %v", set, err)
	}
}

// golds are the answers of a file's rows, or why it cannot be read.
func golds(t *testing.T, path string) []string {
	t.Helper()
	set, err := Load(path, Fields{})
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, row := range set.Rows {
		list = append(list, row.Gold)
	}
	return list
}

// An answer is what stands behind ####, in a box, or alone, without what is not seen.
func TestGolds(t *testing.T) {
	for content, want := range map[string]string{
		`{"question": "a", "answer": "work\n#### 3/4"}`:                              "3/4",
		`{"question": "a", "answer": "work\n####$1,000.50"}`:                         "1000.50",
		`{"question": "a", "answer": "work\n#### 10, 20"}`:                           "10, 20",
		`{"question": "a", "answer": "It is $\\boxed{\\frac12}$."}`:                  `\frac12`,
		`{"question": "a", "answer": "\ufeff42\u200b\r\n"}`:                          "42",
		`{"prompt": "a", "reward_model": {"ground_truth": 5.0}}`:                     "5",
		`{"prompt": "a", "reward_model": {"ground_truth": ["x"]}}`:                   "x",
		`{"prompt": "a", "reward_model": {"style": "rule"}, "answer": "#### 1,234"}`: "1234",
	} {
		if got := golds(t, file(t, "x.jsonl", content)); got[0] != want {
			t.Errorf("%s: %q, want %q", content, got, want)
		}
	}
}

// Answers need not be texts: those of JSON and of Parquet are read alike.
func TestAnswersOfOtherTypes(t *testing.T) {
	path := func(name string) string { return filepath.Join(t.TempDir(), name) }
	type row[T any] struct {
		Question string `json:"question" parquet:"question"`
		Answer   T      `json:"answer" parquet:"answer,optional"`
	}
	for _, ending := range Formats {
		floats, lists, singles := path("floats"+ending), path("lists"+ending), path("singles"+ending)
		nan := new(math.NaN())
		if ending != ".parquet" {
			nan = nil // JSON has no other
		}
		if err := errors.Join(
			Write(floats, []row[*float64]{{"a", new(42.0)}, {"b", nil}, {"c", nan}, {"d", new(0.5)}, {"e", new(0.0)},
				{"f", new(1e15)}}),
			Write(singles, []row[float32]{{"a", 0.1}, {"b", 3}}),
			Write(lists, []row[[]string]{{"a", []string{"x"}}, {"b", []string{}}})); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string][]string{floats: {"42", "", "", "0.5", "0", "1000000000000000"},
			singles: {"0.1", "3"}, lists: {"x", ""}} {
			if got := golds(t, path); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", filepath.Base(path), got, want)
			}
		}
		two, object := path("two"+ending), path("object"+ending)
		if err := errors.Join(Write(two, []row[[]string]{{"a", []string{"x"}}, {"b", []string{"x", "y"}}}),
			Write(object, []row[map[string]string]{{"a", map[string]string{"x": "y"}}})); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]string{two: "row 1: answer: expected one answer, got a list of 2",
			object: "row 0: answer: expected a text, a number or a list of one, got an object"} {
			if ending == ".jsonl" { // rows count from 0, lines from 1
				want = strings.NewReplacer("row 0:", "row 0 (line 1):", "row 1:", "row 1 (line 2):").Replace(want)
			}
			if _, err := Load(path, Fields{}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want one with %q", filepath.Base(path), err, want)
			}
		}
	}
	for written, want := range map[string]string{"42.0": "42", "4.2e1": "42", "12345678901234567890": "12345678901234567890",
		"1e-999999999": "1e-999999999", "0.0": "0", "1.50": "1.50", "true": "true"} {
		if got := golds(t, file(t, "x.jsonl", `{"question": "a", "answer": `+written+`}`)); got[0] != want {
			t.Errorf("%s: %q, want %q", written, got, want)
		}
	}
}

// What is missing in a row is counted and named; a row that asks nothing is left out, whatever the format.
func TestRowsThatLackSomething(t *testing.T) {
	type row struct {
		Question *string `json:"question" parquet:"question,optional"`
		Answer   *string `json:"answer" parquet:"answer,optional"`
	}
	rows := []row{{new("a"), new("1")}, {nil, new("2")}, {new("c"), nil}, {new(" \u200b"), new("4")},
		{new("e"), new("\ufeff")}, {new("f"), new("work\n#### ")}, {new("g"), new("7")},
		{nil, nil}}
	want := []string{"rows.x: 3 of 8 rows have no question, and are left out (rows 1, 3, 7)",
		"rows.x: 4 of 8 rows have no answer, or nothing behind ####: no reply to them is right (rows 2, 4, 5, 7)"}
	for _, ending := range Formats {
		path := filepath.Join(t.TempDir(), "rows"+ending)
		if err := Write(path, rows); err != nil {
			t.Fatal(err)
		}
		set, err := Load(path, Fields{})
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Clone(want)
		if ending == ".jsonl" {
			want[0] = strings.Replace(want[0], "7)", "7; lines 2, 4, 8)", 1)
			want[1] = strings.Replace(want[1], "7)", "7; lines 3, 5, 6, 8)", 1)
		}
		if got := set.Notes(); strings.ReplaceAll(strings.Join(got, "\n"), path, "rows.x") != strings.Join(want, "\n") {
			t.Errorf("%s: %q", ending, got)
		}
		if len(set.Rows) != 5 || set.Rows[4].Index != 6 || set.Rows[4].ID != "6" {
			t.Errorf("%s: %+v", ending, set.Rows)
		}
	}
	if _, err := Load(file(t, "x.jsonl", `{"question": null, "answer": "1"}`), Fields{}); err == nil ||
		!strings.Contains(err.Error(), "none of its 1 rows has a question") {
		t.Errorf("a file that asks nothing: %v", err)
	}
	if notes := (&Set{Rows: make([]Row, 3)}).Notes(); notes != nil {
		t.Errorf("nothing is missing: %q", notes)
	}
}

// A byte-order mark is skipped; what is not UTF-8 is refused with its line.
func TestEncodings(t *testing.T) {
	const bom, line = "\xef\xbb\xbf", `{"question": "a", "answer": "1"}`
	for name, content := range map[string]string{"x.jsonl": bom + line + "\n" + bom + line + "\n" + bom, "x.json": bom + "[" +
		line + "," + line + "]"} {
		if got := golds(t, file(t, name, content)); !slices.Equal(got, []string{"1", "1"}) {
			t.Errorf("%s: %q", name, got)
		}
	}
	type binary struct {
		Question string `parquet:"question"`
		Answer   []byte `parquet:"answer"`
	}
	path := filepath.Join(t.TempDir(), "x.parquet")
	if err := Write(path, []binary{{"a", []byte("1")}, {"b", []byte("\xe9")}}); err != nil {
		t.Fatal(err)
	}
	for want, path := range map[string]string{
		`line 2: "{\"question\": \"caf\xe9\"}`: file(t, "l.jsonl", line+"\n{\"question\": \"caf\xe9\"}\n"),
		"line 3: ":                             file(t, "l.json", "[\n"+line+",\n\"\xff\"]"),
		"line 1: it is UTF-16":                 file(t, "u.jsonl", "\xff\xfe{\x00"),
		"it is UTF-16, expected UTF-8":         file(t, "u.json", "\x00[\x00{"),
		"row 1: answer: expected UTF-8":        path,
	} {
		if _, err := Load(path, Fields{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", filepath.Base(path), err, want)
		}
	}
}

func TestWrongFiles(t *testing.T) {
	for want, path := range map[string]string{
		"line 2: not a JSON object":      file(t, "x.jsonl", "{\"question\": \"a\"}\nnonsense\n"),
		"not a list of objects":          file(t, "x.json", `{"a": 1}`),
		`the ending is ".csv"`:           file(t, "x.csv", "a,b"),
		"it has no rows":                 file(t, "y.jsonl", "\n"),
		"no such file":                   filepath.Join(t.TempDir(), "absent.json"),
		"parquet":                        file(t, "x.parquet", "PAR1 but not really PAR1"),
		"no column for the question":     file(t, "z.jsonl", `{"foo": 1}`),
		"no column for the answer":       file(t, "w.jsonl", `{"question": "a"}`),
		"expected a text or a list":      file(t, "v.jsonl", `{"question": 5, "answer": "a"}`),
		`message 0: expected {"role": …`: file(t, "u.jsonl", `{"prompt": [{"content": "a"}], "answer": "a"}`),
	} {
		if _, err := Load(path, Fields{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", filepath.Base(path), err, want)
		}
	}
	_, err := Load(file(t, "x.jsonl", `{"question": "a", "answr": "b"}`), Fields{Answer: "answer"})
	if err == nil || !strings.Contains(err.Error(), "did you mean answr?") {
		t.Errorf("misnamed column: %v", err)
	}
}

// The 30 validation problems are numpy's first 30 of default_rng(42).permutation(500).
func TestMath500Split(t *testing.T) {
	train, validation := Math500Split()
	if len(train) != 470 || len(validation) != 30 || validation[0] != 473 || validation[29] != 245 || train[0] != 225 {
		t.Fatalf("%d and %d rows, starting %v and %v", len(train), len(validation), train[:1], validation[:1])
	}
	all := slices.Concat(train, validation)
	slices.Sort(all)
	if !slices.Equal(all, All(500)) {
		t.Error("the two parts are not a division of the 500")
	}
}

func TestSplitKeepsDuplicatesTogether(t *testing.T) {
	table, err := Read(file(t, "x.jsonl", strings.Repeat(`{"question": "same?", "answer": "1"}`+"\n", 3)+`{"question": "b", "answer": "1"}
{"question": "c", "answer": "1"}
{"question": "Same ?", "answer": "2"}`))
	if err != nil {
		t.Fatal(err)
	}
	train, held := Split(table, 2, 7)
	if !slices.Equal(train, []int{0, 1, 2, 5}) || !slices.Equal(held, []int{3, 4}) {
		t.Errorf("train %v, held out %v", train, held)
	}
	kept, removed := Without(table, &Table{Rows: []Columns{{"question": "B.", "answer": "x"}}})
	if removed != 1 || len(kept) != 5 {
		t.Errorf("kept %v, removed %d", kept, removed)
	}
}

func TestCheckFindsEverything(t *testing.T) {
	set, err := Load(file(t, "x.jsonl", `{"question": "a", "answer": "\\dfrac12"}
{"question": "A.", "answer": ""}
{"question": "b", "answer": "5"}
{"question": null, "answer": "6"}
{"question": "c", "answer": "#### 7 apples"}
{"question": "d \ud83d", "answer": "8"}
{"question": "e", "answer": "####"}`), Fields{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := Load(file(t, "y.jsonl", `{"question": "b ", "answer": "5"}`), Fields{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Check(set, other, Characters,
		func(row Row, reply string) bool { return row.Gold != `\dfrac12` && reply == `\boxed{`+row.Gold+"}" })
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(r.Duplicates, []int{1}) || !slices.Equal(r.Shared, []int{2}) ||
		!slices.Equal(r.NoAnswer, []int{1, 6}) ||
		!slices.Equal(r.NoQuestion, []int{3}) || !slices.Equal(r.LeftOut, []int{4, 5}) || r.Rows != 7 ||
		!slices.Equal(r.Unscored, []int{0}) || r.Changed != 1 || r.Longest != 3 || r.Shortest != 1 {
		t.Errorf("%+v", r)
	}
}

func TestDownload(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Path != "/datasets/HuggingFaceH4/MATH-500/resolve/main/test.jsonl" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(`{"problem": "a", "answer": "1"}`))
	}))
	defer server.Close()
	h := hub.Hub{Endpoint: server.URL, Client: server.Client()}
	quiet := func(string, int64, int64) {}
	dir := t.TempDir()
	for range 2 {
		path, err := Download(t.Context(), h, "math500", "test", dir, quiet)
		if err != nil {
			t.Fatal(err)
		}
		if table, err := Read(path); err != nil || len(table.Rows) != 1 {
			t.Fatalf("%+v, %v", table, err)
		}
	}
	if asked != 1 {
		t.Errorf("downloaded %d times", asked)
	}
	if _, err := Download(t.Context(), h, "gsm8k", "train", dir, quiet); err == nil ||
		!strings.Contains(err.Error(), "404") {
		t.Errorf("a missing file: %v", err)
	}
}
