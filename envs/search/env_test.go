package search

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"gyre/envs"
	"gyre/envs/envtest"
	"gyre/envs/tools"
)

func play(t *testing.T, options map[string]any, seed int64) *game {
	t.Helper()
	return envtest.Play[*game](t, "search", options, seed)
}

func step(t *testing.T, g *game, action string) (envs.Result, string) {
	t.Helper()
	r, err := g.Step(t.Context(), action)
	if err != nil {
		t.Fatal(err)
	}
	return r, g.Observe().String()
}

// file writes a file whose ending is that of name.
func file(t *testing.T, name string, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Every question of ours is answered by its expert within the actions of an episode, from documents that hold the
// answer.
func TestExpert(t *testing.T) {
	g := play(t, nil, 0)
	spec, _ := envs.Lookup("search")
	if len(g.documents) < 30 || len(g.questions) < 40 {
		t.Errorf("%d documents, %d questions", len(g.documents), len(g.questions))
	}
	found := 0.0
	for seed := range int64(len(g.questions)) {
		start, err := g.Reset(t.Context(), seed, 0)
		if err != nil {
			t.Fatal(err)
		}
		read := ""
		for range spec.MaxActions {
			way, ok := g.Solve()
			if !ok {
				t.Fatalf("%s: no way", g.question.text)
			}
			reply := start.WriteReply(way)
			if got := start.ReadReply(reply, 1); !slices.Equal(got, way) {
				t.Fatalf("%q is read as %q", reply, got)
			}
			r, says := step(t, g, way[0])
			if !r.Done {
				read += " " + normal(says)
				continue
			}
			if !r.Success || r.Reward != 1 || r.Info["final_support_found"] != 1 {
				t.Errorf("%s: %+v", g.question.text, r)
			}
			break
		}
		if g.Running() {
			t.Errorf("%s: not answered", g.question.text)
		}
		gold := g.question.answers[0]
		holds := slices.ContainsFunc(g.question.answers,
			func(a string) bool { return strings.Contains(read, normal(a)) })
		if gold != "yes" && gold != "no" && !holds {
			t.Errorf("%s: the documents do not hold %q", g.question.text, gold)
		}
		for _, h := range g.corpus.search(g.question.text, 5) {
			if g.documents[h.document].title == g.question.support[0] {
				found++
			}
		}
	}
	if share := found / float64(len(g.questions)); share < 0.9 {
		t.Errorf("a search for the question finds the first document for %.0f %% of the questions", 100*share)
	}
}

func TestTools(t *testing.T) {
	g := play(t, map[string]any{"results": 2, "excerpt": 20}, 3)
	r, says := step(t, g, tools.CallOf(g.Offered[0], "Who DESIGNED the bridges with lamps?"))
	lines := strings.Split(says, "\n")
	if r.Reward != 0 || r.Done || !r.Valid || len(lines) != 4 ||
		!strings.HasPrefix(lines[0], "tool search: 1. Lantern Bridge (score ") ||
		lines[1] != "The Lantern Bridge i…" {
		t.Errorf("%+v, %q", r, says)
	}
	if _, says := step(t, g, "search[of the]"); says != "tool search: nothing found" {
		t.Errorf("stop words alone: %q", says)
	}
	if _, says := step(t, g, "read[ petra vonn ]"); !strings.Contains(says,
		"the breakwater of Sund. She died in 1923.") {
		t.Errorf("RAGEN's form: %q", says)
	}
	if _, says := step(t, g, "read[Petra]"); !strings.Contains(says, `no document is called "Petra"; a search`) ||
		!strings.Contains(says, "1. Petra Vonn") {
		t.Errorf("no such title: %q", says)
	}
	if r, _ := step(t, g, " "); r.Valid || r.Done {
		t.Errorf("an empty answer: %+v", r)
	}
	if r, _ := step(t, g, "finish[The 1889.]"); !r.Success || !r.Done || r.Reward != 1 || r.Components[0].Value != 1 ||
		r.Info["final_support_found"] != 1 {
		t.Errorf("%s: %+v", g.question.text, r)
	}
	if _, err := g.Step(t.Context(), "read[Ostrel]"); !errors.Is(err, envs.ErrNotRunning) {
		t.Error(err)
	}
	start, err := g.Reset(t.Context(), 1, 0)
	if err != nil || len(start.Tools) != 2 || start.Tools[1].Name != "read" ||
		!strings.Contains(start.Instruction, `"query"`) {
		t.Errorf("%+v, %v", start, err)
	}
}

// Expected values: SQuAD's evaluate-v1.1.py and HotpotQA's hotpot_evaluate_v1.py, by hand.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		answer string
		right  []string
		exact  bool
		f1     float64
	}{
		{"The  Lantern-Bridge!", []string{"lanternbridge"}, true, 1},
		{"an apple a day", []string{"apple day"}, true, 1},
		{"Theodor", []string{"dor"}, false, 0},
		{"the red bridge of Ostrel", []string{"Lantern Bridge", "red bridge"}, false,
			2 * (2. / 4) * (2. / 2) / (2./4 + 2./2)},
		{"b b b", []string{"b b c d"}, false, 2 * (2. / 3) * (2. / 4) / (2./3 + 2./4)},
		{"yes it is", []string{"yes"}, false, 0}, // yes, no and noanswer match as a whole only
		{"yes", []string{"yes it is"}, false, 0},
		{"Yes.", []string{"yes"}, true, 1},
		{"", []string{"x"}, false, 0},
	} {
		if exact, f1 := judge(c.answer, c.right); exact != c.exact || math.Abs(f1-c.f1) > 1e-12 {
			t.Errorf("%q for %q: %v, %g, want %v, %g", c.answer, c.right, exact, f1, c.exact, c.f1)
		}
	}
}

// Rewards between right and wrong: an F1 from the threshold on is the reward.
func TestThreshold(t *testing.T) {
	problems := file(t, "q.jsonl", `{"question": "Q?", "answer": "one two three four"}`)
	corpus := file(t, "c.jsonl", `{"title": "T", "text": "one two three four"}`)
	for threshold, want := range map[float64]float64{0.3: 0.4, 0.4: 0.4, 0.5: -1, 2: -1} {
		g := play(t, map[string]any{"problems": problems, "corpus": corpus, "f1_threshold": threshold,
			"incorrect_reward": -1}, 0)
		r, _ := step(t, g, "one")
		if math.Abs(r.Reward-want) > 1e-12 || r.Success != (want > 0) || math.Abs(r.Components[1].Value-0.4) > 1e-12 {
			t.Errorf("threshold %g: %+v, want %g", threshold, r, want)
		}
	}
}

// BM25 as Robertson's formula gives it, with the numbers of two documents put in by hand.
func TestRanking(t *testing.T) {
	c := newCorpus([]document{{"a", "whale whale ship"}, {"b", "whale harbour of ships and boats"}, {"c", "ship"}})
	// Terms: three of a (its title is a stop word), five of b (b, whale, harbour, ship, boat), two of c (c, ship).
	idf := math.Log(1 + (3-2+0.5)/(2+0.5))
	average := (3. + 5 + 2) / 3
	want := []hit{
		{0, idf * 2 * 2.2 / (2 + 1.2*(0.25+0.75*3/average))},
		{1, idf * 1 * 2.2 / (1 + 1.2*(0.25+0.75*5/average))},
	}
	got := c.search("Whales, whales", 5)
	for i := range want {
		if len(got) != 2 || got[i].document != want[i].document || math.Abs(got[i].score-want[i].score) > 1e-12 {
			t.Fatalf("%+v, want %+v", got, want)
		}
	}
	if got := c.search("ships", 1); len(got) != 1 || got[0].document != 2 {
		t.Errorf("the shortest document of a term comes first: %+v", got)
	}
}

// HotpotQA's two forms bring their documents along; the same paragraph of two questions is one document.
func TestFiles(t *testing.T) {
	original := file(t, "hotpot.json", `[
		{"_id": "1", "question": "Q1?", "answer": "yes", "supporting_facts": [["Alpha", 0], ["Alpha", 1], ["Beta", 0]],
		 "context": [["Alpha", ["One.", " Two."]], ["Beta", ["Three."]]]},
		{"_id": "2", "question": "Q2?", "answer": "no", "supporting_facts": [["Beta", 0]], "context": [["Beta", ["Three."]]]}]`)
	g := play(t, map[string]any{"problems": original}, 0)
	if len(g.documents) != 2 || g.documents[0] != (document{"Alpha", "One. Two."}) ||
		!slices.Equal(g.question.support, []string{"Alpha", "Beta"}) {
		t.Errorf("%+v, %+v", g.documents, g.question)
	}
	type column struct {
		Title     []string   `parquet:"title,list"`
		Sentences [][]string `parquet:"sentences,list"`
	}
	type facts struct {
		Title []string `parquet:"title,list"`
		Sent  []int64  `parquet:"sent_id,list"`
	}
	type row struct {
		Question string `parquet:"question"`
		Answer   string `parquet:"answer"`
		Facts    facts  `parquet:"supporting_facts"`
		Context  column `parquet:"context"`
	}
	path := filepath.Join(t.TempDir(), "hotpot.parquet")
	err := parquet.WriteFile(path, []row{{"Q?", "x", facts{[]string{"Beta", "Beta"}, []int64{0, 1}},
		column{[]string{"Alpha", "Beta"}, [][]string{{"One."}, {"Two.", "Three."}}}}})
	if err != nil {
		t.Fatal(err)
	}
	g = play(t, map[string]any{"problems": path}, 5)
	if len(g.documents) != 2 || g.documents[1] != (document{"Beta", "Two. Three."}) ||
		!slices.Equal(g.question.support, []string{"Beta"}) {
		t.Errorf("Parquet: %+v, %+v", g.documents, g.question)
	}

	corpus := file(t, "c.jsonl", `{"id": "7", "contents": "\"Gamma\"\nText of gamma."}`,
		`{"id": 8, "contents": "untitled"}`, `{"title": "D", "sentences": ["x", "y"]}`)
	for name, row := range map[string]string{
		"a list":        `{"question": "Q?", "golden_answers": ["a", "b"]}`,
		"RAGEN's":       `{"question": "Q?", "ground_truth": ["a", "b"]}`,
		"a wrapped one": `{"question": "Q?", "prompt": [], "reward_model": {"ground_truth": {"target": ["a", "b"]}}}`,
	} {
		g = play(t, map[string]any{"train_path": file(t, "q.jsonl", row), "corpus": corpus}, 0)
		if r, _ := step(t, g, "B"); !r.Success {
			t.Errorf("%s: %+v", name, g.question)
		}
	}
	want := []document{{"Gamma", "Text of gamma."}, {"8", "untitled"}, {"D", "x y"}}
	if !slices.Equal(g.documents, want) {
		t.Errorf("%+v, want %+v", g.documents, want)
	}
	spec, _ := envs.Lookup("search")
	for want, options := range map[string]map[string]any{
		"option results":                      {"results": 0},
		"option max_instances":                {"max_instances": -1},
		"option f1_threshold":                 {"f1_threshold": -1},
		"name a file of questions":            {"corpus": corpus},
		"bring none":                          {"problems": file(t, "q.jsonl", `{"question": "Q?", "answer": "x"}`)},
		"row 0 (line 1): expected a text":     {"problems": file(t, "q.jsonl", `{"question": "Q?"}`), "corpus": corpus},
		"row 0 (line 1): expected a document": {"problems": original, "corpus": file(t, "c.jsonl", `{"title": "x"}`)},
		"option corpus: open":                 {"problems": original, "corpus": "missing.jsonl"},
		"context: expected titles and ": {"problems": file(t, "q.jsonl",
			`{"question": "Q?", "answer": "x", "context": [["T", "text"]]}`)},
	} {
		if _, err := spec.Make(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want one with %q", options, err, want)
		}
	}
}

// A file is read once for all environments.
func TestFilesAreShared(t *testing.T) {
	problems := file(t, "q.jsonl", `{"question": "Q?", "answer": "x", "context": [["T", ["text"]]]}`)
	a, b := play(t, map[string]any{"problems": problems}, 0), play(t, map[string]any{"problems": problems}, 0)
	if a.corpus != b.corpus {
		t.Error("two environments have read the same file")
	}
}
