package inspect

import (
	"archive/zip"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/model/chat"
)

// tokenizer is one of bytes with two special tokens.
func tokenizer(t *testing.T) *chat.Tokenizer {
	t.Helper()
	vocabulary, next := map[string]int{}, rune(256)
	for b := range 256 { // the printable characters that byte-level BPE writes for bytes
		r := rune(b)
		if b < 33 || b > 126 && b < 161 || b == 173 {
			r, next = next, next+1
		}
		vocabulary[string(r)] = b
	}
	special := func(id int, content string) any {
		return map[string]any{"id": id, "content": content, "special": true}
	}
	level := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	dir := t.TempDir()
	for name, content := range map[string]any{
		"tokenizer.json": map[string]any{"version": "1.0", "added_tokens": []any{special(256, "<|im_start|>"),
			special(257, "<|im_end|>")}, "pre_tokenizer": level, "decoder": level,
			"model": map[string]any{"type": "BPE", "vocab": vocabulary, "merges": []string{}}},
		"tokenizer_config.json": map[string]any{"eos_token": "<|im_end|>", "chat_template": chat.ChatML},
	} {
		data, err := json.Marshal(content)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	loaded, err := chat.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// dialogue is an episode of two turns, in one sequence or in two.
func dialogue(t *testing.T, words *chat.Tokenizer, forgets bool) *episode.Episode {
	t.Helper()
	e := &episode.Episode{Tag: "a/b", Seed: 7, Score: 0.5, Success: true, Stop: "terminated", Gold: "42"}
	say := func(text string) int {
		ids, err := words.EncodeMarkup(text)
		if err != nil {
			t.Fatal(err)
		}
		e.IDs = append(e.IDs, ids...)
		return len(e.IDs)
	}
	reply := say("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nassistant\nTwo?<|im_end|>\n" +
		"<|im_start|>assistant\n<think>")
	end := say("hm</think>2<|im_end|>")
	e.Turns = []episode.Turn{{Observation: 0, Reply: reply, End: end}}
	next := "\n<|im_start|>user\nThree?<|im_end|>\n<|im_start|>assistant\n<think>"
	if forgets {
		e.Contexts = []int{0, end}
	}
	e.Turns = append(e.Turns, episode.Turn{Observation: end, Reply: say(next), End: say("</think>3")})
	e.Mask = make([]bool, len(e.IDs))
	return e
}

// What nobody knows is not logged as a failure.
func TestLogWithoutSuccess(t *testing.T) {
	words := tokenizer(t)
	e := dialogue(t, words, false)
	e.Unjudged = true
	l := Log{Task: "a/b", Episodes: []*episode.Episode{e}}
	sample, used := l.sample(e, "a", 1, words)
	if scores := sample["scores"].(object); len(scores) != 1 || scores["score"] == nil {
		t.Errorf("scores of the episode: %v", scores)
	}
	head := l.header([]string{"a"}, 1, used)
	scores := head["results"].(object)["scores"].([]any)
	scorers := head["eval"].(object)["scorers"].([]any)
	if len(scores) != 1 || len(scorers) != 1 || scores[0].(object)["name"] != "score" {
		t.Errorf("scores %v of %v", scores, scorers)
	}
}

// A log is an archive of JSON with a header, a file per episode and summaries; what an environment says forges no role.
func TestLogOfEpisodes(t *testing.T) {
	words, path := tokenizer(t), filepath.Join(t.TempDir(), "log.eval")
	l := Log{Task: "a/b", Model: "gyre/m", Hash: "abc", Created: time.Unix(0, 0), Success: 1, Score: 0.5,
		Episodes: []*episode.Episode{dialogue(t, words, false), dialogue(t, words, true)}}
	if err := l.Write(path, words); err != nil {
		t.Fatal(err)
	}
	archive, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	var names []string
	for _, f := range archive.File {
		names = append(names, f.Name)
	}
	if want := []string{"samples/a_b-7_epoch_1.json", "samples/a_b-7_epoch_2.json", "_journal/start.json",
		"_journal/summaries/1.json", "summaries.json", "header.json"}; !slices.Equal(names, want) {
		t.Errorf("files %v, want %v", names, want)
	}
	load := func(name string, to any) {
		file, err := archive.Open(name)
		if err == nil {
			err = json.NewDecoder(file).Decode(to)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	var head struct {
		Version int
		Status  string
		Results struct {
			Completed int `json:"completed_samples"`
			Scores    []struct {
				Metrics map[string]struct{ Value float64 }
			}
		}
		Eval struct{ Config struct{ Epochs int } }
	}
	load("header.json", &head)
	if head.Version != 2 || head.Status != "success" || head.Results.Completed != 2 || head.Eval.Config.Epochs != 2 ||
		head.Results.Scores[0].Metrics["accuracy"].Value != 1 {
		t.Errorf("header %+v", head)
	}
	for epoch, inputs := range map[int][]int{1: {2, 4}, 2: {2, 1}} {
		var sample struct {
			Epoch         int
			Input, Target string
			Messages      []struct{ Role, Content string }
			Events        []struct{ Input []any }
			Scores        map[string]struct{ Value float64 }
			Usage         map[string]map[string]int `json:"model_usage"`
		}
		load(names[epoch-1], &sample)
		want := []struct{ Role, Content string }{{"system", "Be brief."}, {"user", "assistant\nTwo?"},
			{"assistant", "<think>hm</think>2"}, {"user", "Three?"}, {"assistant", "<think></think>3"}}
		if !slices.Equal(sample.Messages, want) || sample.Epoch != epoch || sample.Target != "42" ||
			sample.Scores["score"].Value != 0.5 || sample.Input != "assistant\nTwo?" {
			t.Errorf("sample %+v", sample)
		}
		for i, n := range inputs {
			if len(sample.Events[i].Input) != n {
				t.Errorf("epoch %d: turn %d sees %d messages, want %d", epoch, i+1, len(sample.Events[i].Input), n)
			}
		}
		e := l.Episodes[epoch-1]
		input := e.Turns[0].Reply + e.Turns[1].Reply - e.SequenceStart(e.Turns[1].Reply)
		if got := sample.Usage["gyre/m"]; got["output_tokens"] != 12+9 || got["input_tokens"] != input {
			t.Errorf("usage %v, want %d in", got, input)
		}
	}
}
