package episodes_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	_ "gyre/envs/builtin"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/study/episodes"
	"gyre/orchestrate/study/episodes/episodetest"
)

// open writes a run and opens it.
func open(t *testing.T) (*episodes.Source, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "demo")
	episodetest.Run{Dir: dir, Steps: 4, Saved: 2, Groups: 4, Members: 4,
		Config: "[model]\npath = \"nowhere\"\n[[envs]]\ntag = \"sokoban\"\ngroups = 4\ngroup_size = 4\n[rollout]\nthink = true\n[actor]\nmini_batch = 8\n"}.Write(t)
	s, err := episodes.Open(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	return s, dir
}

// selected are the episodes of the last step that a filter wants.
func selected(t *testing.T, s *episodes.Source, f episodes.Filter) []episodes.Entry {
	t.Helper()
	file, err := s.File("", -1)
	if err != nil {
		t.Fatal(err)
	}
	found, err := s.Select(context.Background(), file, f)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func viewed(t *testing.T, s *episodes.Source, number int) *episodes.View {
	t.Helper()
	v, err := s.View(context.Background(), selected(t, s, episodes.Filter{Episodes: []int{number}})[0])
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A search goes back through the steps, and goes on where it ended.
func TestSearchOverSteps(t *testing.T) {
	s, _ := open(t)
	text := episodes.Filter{Text: "ONERROR"}
	first, err := s.Search(context.Background(), "", -1, text, 1, 0)
	if err != nil || len(first.Episodes) != 4 || first.Steps != 1 || first.Next != 3 || first.Episodes[0].Step != 4 {
		t.Fatalf("%+v, %v", first, err)
	}
	rest, err := s.Search(context.Background(), "step", first.Next, text, 0, 0)
	if err != nil || len(rest.Episodes) != 4 || rest.Episodes[0].Step != 3 || rest.Next != -1 {
		t.Errorf("%+v, %v", rest, err)
	}
	if late, err := s.Search(context.Background(), "step", -1, text, 0, 1); err != nil || late.Steps != 1 || late.Next != 3 {
		t.Errorf("after a nanosecond: %+v, %v", late, err)
	}
	if _, err := s.Search(context.Background(), "analysis", -1, text, 0, 0); err == nil {
		t.Error("a kind that is not there was searched")
	}
}

func TestFilters(t *testing.T) {
	s, _ := open(t)
	low := 10.2
	for name, c := range map[string]struct {
		filter episodes.Filter
		count  int
	}{
		"all":          {episodes.Filter{}, 16},
		"score":        {episodes.Filter{Low: &low}, 4},
		"score above":  {episodes.Filter{High: &low}, 14},
		"tag":          {episodes.Filter{Tag: "bandit"}, 0},
		"group":        {episodes.Filter{Groups: []int{1, 3}}, 8},
		"task":         {episodes.Filter{Task: "sokoban/10002"}, 4},
		"stop":         {episodes.Filter{Stop: "turns"}, 16},
		"length":       {episodes.Filter{Shortest: 300}, 4},
		"text":         {episodes.Filter{Text: "ONERROR"}, 4},
		"text of both": {episodes.Filter{Text: "schön"}, 16},
		"label":        {episodes.Filter{Text: "level 2"}, 4},
	} {
		if got := selected(t, s, c.filter); len(got) != c.count {
			t.Errorf("%s: %d episodes, want %d", name, len(got), c.count)
		}
	}
	if err := (episodes.Filter{Stop: "turn"}).Check(); err == nil || !strings.Contains(err.Error(), "did you mean turns?") {
		t.Errorf("a misspelt stop: %v", err)
	}
}

// What is not there is named with what is.
func TestFilesOfARun(t *testing.T) {
	s, dir := open(t)
	if f, err := s.File("", -1); err != nil || f.Kind != "step" || f.Step != 4 {
		t.Errorf("%+v, %v", f, err)
	}
	for _, c := range []struct {
		kind string
		step int
	}{{"step", 1}, {"validation", -1}} {
		if _, err := s.File(c.kind, c.step); err == nil || !strings.Contains(err.Error(), "step 4") {
			t.Errorf("%s %d: %v", c.kind, c.step, err)
		}
	}
	path := filepath.Join(dir, "rollouts", "step_3.jsonl")
	single, err := episodes.Open(path, "")
	if err != nil {
		t.Fatal(err)
	}
	if v := viewed(t, single, 1); v.Kind != "file" || len(v.Turns) != 2 || v.Turns[0].Parts[0].Kind != "thought" {
		t.Errorf("an episode of a file by itself: %+v", v.Turns)
	}
	if err := os.WriteFile(path, []byte("{\"step\": 1}\n{\"step\": \n"), 0o644); err != nil {
		t.Fatal(err)
	}
	file, err := single.File("", -1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := single.Index(file); err == nil || !strings.Contains(err.Error(), path+":2: ") {
		t.Errorf("a torn line: %v", err)
	}
	if empty, err := episodes.Open(t.TempDir(), ""); err != nil {
		t.Error(err)
	} else if _, err := empty.File("", -1); err == nil || !strings.Contains(err.Error(), "run.save_rollouts") {
		t.Errorf("a run without episodes: %v", err)
	}
}

// A view says who wrote which token, takes replies apart, and has a board after every turn.
func TestViewOfAnEpisode(t *testing.T) {
	s, _ := open(t)
	v := viewed(t, s, 1)
	whole := strings.Join(v.Tokens.Text, "")
	if !strings.Contains(whole, "schön") || strings.Contains(whole, "\uFFFD") {
		t.Errorf("text %q", whole)
	}
	for i, id := range v.Tokens.ID {
		special := slices.Contains(v.Tokens.Special, i)
		if want := id < 3; special != want {
			t.Errorf("token %d, id %d (%q): special %t", i, id, v.Tokens.Text[i], special)
		}
	}
	said := map[int]string{}
	for i, owner := range v.Tokens.Owner {
		said[owner] += v.Tokens.Text[i]
	}
	if want := "Reihe für Reihe" + episodetest.Forged + "weiter"; said[episodes.Environment] != want {
		t.Errorf("the environment said %q, want %q", said[episodes.Environment], want)
	}
	reply := "erst schön denken</think><answer>Up || Left</answer><|im_end|>"
	if said[episodes.Policy] != reply+reply {
		t.Errorf("the policy said %q", said[episodes.Policy])
	}
	if !strings.HasPrefix(said[episodes.Template], "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n<think>") {
		t.Errorf("the template said %q", said[episodes.Template])
	}
	turn := v.Turns[0]
	if len(turn.Messages) != 1 || turn.Messages[0] != (episodes.Message{Role: "user", Text: "Reihe für Reihe" + episodetest.Forged}) {
		t.Errorf("messages %+v", turn.Messages)
	}
	if want := []episodes.Part{{Kind: "thought", Text: "erst schön denken"}, {Kind: "action", Text: "Up || Left"}}; !slices.Equal(turn.Parts, want) {
		t.Errorf("parts %+v", turn.Parts)
	}
	if v.Start == "" || turn.Board == "" || !slices.Equal(turn.Actions, []string{"Up"}) && !slices.Equal(turn.Actions, []string{"Up", "Left"}) {
		t.Errorf("start %q, actions %q, board %q, notes %v", v.Start, turn.Actions, turn.Board, v.Notes)
	}
	if v.Turns[0].Reward != 0 || v.Turns[1].Reward != 10 || v.Turns[1].Components["format"] != 0.5 {
		t.Errorf("rewards %v and %v, components %v", v.Turns[0].Reward, v.Turns[1].Reward, v.Turns[1].Components)
	}
}

// Columns have a number where the policy has sampled; what is missing says why.
func TestNumbersOfTokens(t *testing.T) {
	s, dir := open(t)
	v := viewed(t, s, 1)
	for name, column := range v.Tokens.Columns {
		for i, value := range column {
			if sampled := v.Tokens.Owner[i] == episodes.Policy; sampled == math.IsNaN(value) {
				t.Fatalf("%s of token %d (sampled: %t) is %v", name, i, sampled, value)
			}
		}
	}
	if a := v.Tokens.Columns["advantage"]; a == nil || a[v.Turns[0].Reply] != 1 {
		t.Errorf("advantage %v", a)
	}
	if v.Notes["advantage"] != "" || !strings.Contains(v.Notes["ratio"], "1 for every token") ||
		!strings.Contains(v.Notes["entropy"], "actor.entropy_top") || !strings.Contains(v.Notes["staleness"], "take turns it is 0") {
		t.Errorf("notes %v", v.Notes)
	}
	if dropped := viewed(t, s, 15); !strings.Contains(dropped.Notes["advantage"], "dropped") || dropped.Tokens.Columns["advantage"] != nil {
		t.Errorf("notes of a dropped group %v", dropped.Notes)
	}
	encoded, err := json.Marshal(v)
	if err != nil || !strings.Contains(string(encoded), `"logprob":[null,`) {
		t.Errorf("%v: %.200s", err, encoded)
	}
	if err := os.Remove(filepath.Join(dir, "rollouts", "update_4.jsonl")); err != nil {
		t.Fatal(err)
	}
	if old := viewed(t, s, 1); !strings.Contains(old.Notes["advantage"], "not recorded") {
		t.Errorf("notes of an older run %v", old.Notes)
	}
}

// Lines fit the terminal, and nothing that others wrote reaches it as a control character.
func TestTextOfAnEpisode(t *testing.T) {
	s, _ := open(t)
	v := viewed(t, s, 1)
	v.Turns[1].Messages[0].Text = "a\x1b[2Jb " + strings.Repeat("word ", 60)
	for _, width := range []int{120, 80, 40} {
		text := v.Text(width)
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width {
				t.Errorf("width %d: a line of %d: %q", width, n, line)
			}
		}
		for _, want := range []string{"thought | erst schön", "Up || Left", "format 0.5", "start", `\x1b[2J`, "solved"} {
			if width > 40 && !strings.Contains(text, want) {
				t.Errorf("width %d lacks %q:\n%s", width, want, text)
			}
		}
		if strings.ContainsRune(text, '\x1b') {
			t.Errorf("width %d: an escape sequence is in the text", width)
		}
	}
}

// Versions of tokens, where episodes carry them, say how old the policy was that drew them.
func TestStaleness(t *testing.T) {
	s, dir := open(t)
	path := filepath.Join(dir, "rollouts", "step_4.jsonl")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	versions := strings.TrimSuffix(line, "}") + `,"versions":[[0,1],[200,2]]}` + "\n"
	if err := os.WriteFile(path, []byte(versions), 0o644); err != nil {
		t.Fatal(err)
	}
	v := viewed(t, s, 0)
	column := v.Tokens.Columns["staleness"]
	if column == nil || column[v.Turns[0].Reply] != 2 || v.Notes["staleness"] != "" {
		t.Errorf("staleness %v, notes %v", column, v.Notes)
	}
}

// A reply is taken apart in the form of its family, thinking that the prompt has begun included.
func TestPartsOfOtherFamilies(t *testing.T) {
	_, dir := open(t)
	actor := filepath.Join(dir, "global_step_1", "actor")
	if err := os.WriteFile(filepath.Join(actor, "chat_template.jinja"), []byte("{# <function= #}"+chat.ChatML), 0o644); err != nil {
		t.Fatal(err)
	}
	tokenizer, err := chat.Load(actor)
	if err != nil {
		t.Fatal(err)
	}
	e := &episode.Episode{Tag: "sokoban", Stop: episode.Turns}
	for sampled, text := range []string{"<|im_start|>user\nadd<|im_end|>\n<|im_start|>assistant\n<think>", "Hm.</think>\nSo:\n" +
		"<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call><|im_end|>"} {
		ids, err := tokenizer.EncodeMarkup(text)
		if err != nil {
			t.Fatal(err)
		}
		if sampled == 1 {
			e.Turns = []episode.Turn{{Reply: len(e.IDs), End: len(e.IDs) + len(ids)}}
		}
		e.IDs = append(e.IDs, ids...)
		e.Mask = append(e.Mask, slices.Repeat([]bool{sampled == 1}, len(ids))...)
	}
	path := filepath.Join(dir, "rollouts", "step_4.jsonl")
	if err := episode.WriteFile(path, []*episode.Episode{e}); err != nil {
		t.Fatal(err)
	}
	s, err := episodes.Open(path, actor)
	if err != nil {
		t.Fatal(err)
	}
	want := []episodes.Part{{Kind: "thought", Text: "Hm."}, {Kind: "text", Text: "So:"},
		{Kind: "call", Text: `{"name": "add", "arguments": {"a": "1"}}`}}
	if got := viewed(t, s, 0).Turns[0].Parts; !slices.Equal(got, want) {
		t.Errorf("parts %+v, want %+v", got, want)
	}
}
