package gateway

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gyre/envs"
	_ "gyre/envs/arithmetic"
	_ "gyre/envs/gateway"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/model/checkpoint/policyinit"
	"gyre/torch"
)

// With this variable the test binary is an agent of a program of its own.
const agentMode = "GYRE_TEST_AGENT"

func TestMain(m *testing.M) {
	if mode := os.Getenv(agentMode); mode != "" && os.Getenv("GYRE_TASK") != "" {
		agent(mode)
		return
	}
	os.Exit(m.Run())
}

type said struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// post sends JSON and reads JSON.
func post(url, key string, body, answer any) (status int, err error) {
	data, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(data))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode == http.StatusOK && answer != nil {
		err = json.Unmarshal(text, answer)
	}
	if response.StatusCode != http.StatusOK {
		fmt.Fprintln(os.Stderr, string(text))
	}
	return response.StatusCode, err
}

// ask has the policy go on; stop says that the gateway refuses.
func ask(url, key string, messages []said) (reply string, status int) {
	var answer struct{ Choices []struct{ Message said } }
	status, err := post(url+"/chat/completions", key, map[string]any{"model": "gpt-x", "temperature": 0, "max_tokens": 9,
		"messages": messages}, &answer)
	if err != nil || status != http.StatusOK {
		return "", status
	}
	return answer.Choices[0].Message.Content, status
}

// speak has the policy go on by Anthropic's API, three turns long, the first of which is edited for even seeds; blocks
// come back as they were.
func speak(seed int) {
	list := []map[string]any{{"role": "user", "content": fmt.Sprint("start ", seed)}}
	for turn := range 3 {
		body, _ := json.Marshal(map[string]any{"model": "claude-x", "temperature": 0, "max_tokens": 9, "messages": list,
			"thinking": map[string]any{"type": "adaptive"}, "system": "Be brief."})
		r, _ := http.NewRequest("POST", os.Getenv("ANTHROPIC_BASE_URL")+"/v1/messages", bytes.NewReader(body))
		r.Header.Set("x-api-key", os.Getenv("ANTHROPIC_API_KEY"))
		r.Header.Set("anthropic-version", "2023-06-01")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			os.Exit(4)
		}
		var said struct{ Content []map[string]any }
		if err := json.NewDecoder(response.Body).Decode(&said); err != nil || response.StatusCode != http.StatusOK {
			os.Exit(5)
		}
		list = append(list, map[string]any{"role": "assistant", "content": said.Content},
			map[string]any{"role": "user", "content": []any{map[string]any{"type": "text", "text": fmt.Sprint("and ", turn)}}})
		if turn == 1 && seed%2 == 0 {
			list[1]["content"] = "edited"
		}
	}
	fmt.Println(`{"reward": 1}`)
}

// agent plays an episode in one of several manners.
func agent(mode string) {
	url, key := os.Getenv("OPENAI_BASE_URL"), os.Getenv("OPENAI_API_KEY")
	var task struct{ Seed, Group int }
	if json.Unmarshal([]byte(os.Getenv("GYRE_TASK")), &task) != nil {
		os.Exit(9)
	}
	messages := []said{{"user", fmt.Sprint("start ", task.Seed)}}
	talk := func() {
		reply, status := ask(url, key, messages)
		if status != http.StatusOK {
			os.Exit(4)
		}
		messages = append(messages, said{"assistant", " " + reply}, said{"user", fmt.Sprint("and ", len(messages))})
	}
	switch mode {
	case "talk":
		talk()
		talk()
		if task.Seed%2 == 0 {
			messages[1].Content += " (edited)"
		}
		talk()
		fmt.Printf(`{"reward": %d, "components": {"length": %d}}`, task.Seed%2, len(messages))
	case "post":
		talk()
		talk()
		root := url + "/reward"
		for _, body := range []any{map[string]any{"turn": 0, "reward": 0.25}, map[string]any{"reward": map[string]any{
			"form": 0.5, "right": 0.5}, "task": "two turns"}} {
			if status, err := post(root, key, body, nil); status != http.StatusOK {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(5)
			}
		}
		time.Sleep(time.Hour) // the reward has ended the episode
	case "tools":
		tool := map[string]any{"type": "function", "function": map[string]any{"name": "look"}}
		if status, err := post(url+"/chat/completions", key, map[string]any{"model": "gpt-x", "max_tokens": 2,
			"messages": messages, "tools": []any{tool}}, nil); status != http.StatusOK {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(6)
		}
		fmt.Println(`{"reward": 1}`)
	case "messages":
		speak(task.Seed)
	case "never":
		fmt.Println(`{"reward": 1}`)
	case "forever":
		for {
			ask(url, key, messages)
		}
	case "hang":
		talk()
		time.Sleep(time.Hour)
	case "die":
		talk()
		os.Exit(7)
	}
}

// policy is a random model over bytes.
func policy(t *testing.T) *torch.Model {
	t.Helper()
	model, err := torch.NewModel(torch.ModelConfig{Family: torch.Qwen2, Head: torch.HeadLM, VocabSize: 259,
		HiddenSize: 32, IntermediateSize: 48, NumLayers: 2, NumHeads: 4, NumKVHeads: 2, HeadDim: 8, MaxPositions: 4096,
		RMSNormEps: 1e-6, RopeTheta: 10000, QKVBias: true, TieEmbeddings: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { model.Close() })
	parameters, err := model.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	defer torch.CloseParameters(parameters)
	rng := rand.New(rand.NewPCG(7, 7))
	for _, p := range parameters {
		values, err := p.Tensor.Float32s()
		if err != nil {
			t.Fatal(err)
		}
		for i := range values {
			values[i] = float32(rng.NormFloat64()) / 4
		}
		if err := p.Tensor.SetFloat32s(values); err != nil {
			t.Fatal(err)
		}
	}
	if err := model.Touch(); err != nil {
		t.Fatal(err)
	}
	return model
}

// play plays sources with a policy and checks that what was drawn is what training computes.
func play(t *testing.T, sources []config.Env, meanwhile func()) ([]*episode.Episode, rollout.Stats) {
	t.Helper()
	tokenizer, err := policyinit.BytesOnly()
	if err != nil {
		t.Fatal(err)
	}
	model := policy(t)
	engine, err := torch.NewEngine(model, torch.EngineConfig{MaxSequences: 8, MaxLength: 1024, MaxBatchTokens: 256,
		PrefixCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	player := rollout.NewPlayer(tokenizer, engine, config.Rollout{Temperature: 0.8, TopP: 1, MaxTokens: 12,
		MaxLength: 1024, Think: true, ActionSeparator: "||", Prompt: "compact", Context: "full",
		NormalizeWithin: "state", Normalize: "identity", EnvTimeout: 60, EnvWorkers: 8, MaxFailed: 1}, nil, 1)
	var others sync.WaitGroup
	if meanwhile != nil {
		others.Go(meanwhile)
	}
	episodes, stats, err := player.Play(t.Context(), rollout.Plan{Stream: rollout.Train, Step: 3, Sources: sources,
		EnvSeed: 10, Sampling: torch.Sampling{Temperature: 0.8, TopP: 1}})
	if err != nil {
		t.Fatal(err)
	}
	others.Wait()
	if err := player.Close(); err != nil {
		t.Error(err)
	}
	var ids [][]int32
	var masks [][]bool
	for _, e := range episodes {
		if err := e.Check(); err != nil {
			t.Fatal(err)
		}
		bounds := append([]int{0}, e.Contexts[min(1, len(e.Contexts)):]...)
		for i, from := range bounds {
			to := append(bounds, len(e.IDs))[i+1]
			ids, masks = append(ids, e.IDs[from:to]), append(masks, e.Mask[from:to])
		}
	}
	if len(ids) == 0 {
		return episodes, stats
	}
	logprobs, err := model.Logprobs(torch.Pack(ids, masks), 0.8)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, e := range episodes {
		for j, sampled := range e.Mask {
			if sampled && e.Logprob[j] != logprobs[at] {
				t.Fatalf("episode %d, token %d: sampled with log-prob %v, trained with %v", e.Index, j, e.Logprob[j],
					logprobs[at])
			}
			at++
		}
	}
	return episodes, stats
}

// programs is a source whose programs are this binary.
func programs(t *testing.T, mode string, groups, size int, timeout float64) config.Env {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return config.Env{Tag: "gateway", Groups: groups, GroupSize: size, MaxTurns: 4, Options: map[string]any{
		"command": fmt.Sprintf("%s=%s exec %s", agentMode, mode, self), "attempt_timeout": timeout, "memory_mib": 0}}
}

// Programs and the agent loop sample in one batch, and each episode is exact, with branches too.
func TestEpisodesOfProgramsAreExact(t *testing.T) {
	arithmetic := config.Env{Tag: "Arithmetic", Groups: 2, GroupSize: 2, MaxTurns: 2, MaxActionsPerTurn: 1}
	episodes, stats := play(t, []config.Env{programs(t, "talk", 2, 3, 120), arithmetic,
		programs(t, "post", 1, 2, 120)}, nil)
	if len(episodes) != 12 {
		t.Fatalf("%d episodes, want 12: %+v", len(episodes), stats.Failures)
	}
	for _, e := range episodes[:6] {
		edited := e.Seed%2 == 0
		if len(e.Turns) != 3 || e.Stop != episode.Terminated || e.Score != float64(e.Seed%2) ||
			episode.Sum(e.Components["length"]) != 7 || (len(e.Contexts) == 2) != edited ||
			e.Metrics["branches"] != float64(max(1, len(e.Contexts))) {
			t.Errorf("seed %d: %d turns, score %v, components %v, contexts %v, stop %s", e.Seed, len(e.Turns), e.Score,
				e.Components, e.Contexts, e.Stop)
		}
		drawn := 0
		for _, turn := range e.Turns {
			drawn += turn.End - turn.Reply
		}
		if drawn != e.PolicyTokens() || drawn > 27 || slices.Contains(e.Mask[:e.Turns[0].Reply], true) {
			t.Errorf("seed %d: %d tokens drawn in turns, %d in the mask, want the same and at most 27", e.Seed, drawn,
				e.PolicyTokens())
		}
	}
	if a, b := episodes[0], episodes[1]; slices.Equal(a.IDs, b.IDs) {
		t.Error("two members of a group drew the same")
	}
	for _, e := range episodes[10:] {
		last := len(e.IDs) - 1
		if e.Label != "two turns" || !e.Success || len(e.Turns) != 2 || e.Score != 1.25 ||
			!slices.Equal(e.Rewards, []episode.Reward{{Token: e.Turns[0].End - 1, Value: 0.25}, {Token: last, Value: 1}}) {
			t.Errorf("a posted reward: %q, success %v, %v", e.Label, e.Success, e.Rewards)
		}
	}
	if stats.NewTokens < 50 || stats.PromptTokens < 500 {
		t.Errorf("%d tokens drawn, %d in prompts", stats.NewTokens, stats.PromptTokens)
	}
}

// Episodes of programs that speak Anthropic's API are exact too.
func TestEpisodesByMessagesAreExact(t *testing.T) {
	episodes, stats := play(t, []config.Env{programs(t, "messages", 4, 2, 120)}, nil)
	if len(episodes) != 8 {
		t.Fatalf("%d episodes, want 8: %+v", len(episodes), stats.Failures)
	}
	for _, e := range episodes {
		edited := e.Seed%2 == 0
		if len(e.Turns) != 3 || e.Score != 1 || e.Stop != episode.Terminated || (len(e.Contexts) == 2) != edited ||
			e.PolicyTokens() > 27 || e.PolicyTokens() < 3 {
			t.Errorf("seed %d: %d turns, score %v, contexts %v, %d tokens drawn, stop %s", e.Seed, len(e.Turns), e.Score,
				e.Contexts, e.PolicyTokens(), e.Stop)
		}
	}
}

// A chat template that shows no tools leaves an agent without its own, which its episodes say.
func TestToolsThatTheTemplateDrops(t *testing.T) {
	episodes, _ := play(t, []config.Env{programs(t, "tools", 1, 1, 120), programs(t, "talk", 1, 1, 120)}, nil)
	if len(episodes) != 2 || episodes[0].Metrics["tools_unseen"] != 1 || episodes[1].Metrics["tools_unseen"] != 0 {
		t.Errorf("%d episodes", len(episodes))
		for _, e := range episodes {
			t.Errorf("%v", e.Metrics)
		}
	}
}

// A program that never asks, asks forever, hangs or dies ends its episode and nothing else.
func TestProgramsThatMisbehave(t *testing.T) {
	for _, c := range []struct{ mode, stop string }{{"never", episode.Error}, {"die", episode.Error},
		{"hang", episode.Timeout}, {"forever", episode.Turns}} {
		t.Run(c.mode, func(t *testing.T) {
			limit := 120.0
			if c.mode == "hang" {
				limit = 2
			}
			episodes, stats := play(t, []config.Env{programs(t, c.mode, 1, 2, limit), programs(t, "talk", 1, 2, 120)}, nil)
			if stats.Stops[c.stop] != 2 || stats.Stops[episode.Terminated] != 2 {
				t.Errorf("stops %v, failures %v", stats.Stops, stats.Failures)
			}
			failed := c.stop != episode.Turns
			if failed && (len(episodes) != 2 || stats.Failed[c.stop] != 4) {
				t.Errorf("%d episodes, failures %v", len(episodes), stats.Failed)
			}
			if !failed && (len(episodes) != 4 || len(episodes[0].Turns) != 4 || episodes[0].Score != 0) {
				t.Errorf("%d episodes, the first has %d turns", len(episodes), len(episodes[0].Turns))
			}
		})
	}
}

// Without a command, the episodes are those of the clients that come; clients with one label play one group.
func TestSessionsThatArrive(t *testing.T) {
	listen := "127.0.0.1:48217"
	source := config.Env{Tag: "gateway", Groups: 2, GroupSize: 2, MaxTurns: 3,
		Options: map[string]any{"listen": listen, "attempt_timeout": 120.0}}
	var mu sync.Mutex // guards groups
	groups := map[string]map[int]bool{"a": {}, "b": {}}
	client := func(label string) {
		for begun := time.Now(); time.Since(begun) < 100*time.Second; time.Sleep(20 * time.Millisecond) {
			var s struct {
				ID, Key string `json:"-"`
				APIKey  string `json:"api_key"`
				BaseURL string `json:"base_url"`
				Task    struct{ Group int }
			}
			status, err := post("http://"+listen+"/v1/sessions", "", map[string]any{"group": label}, &s)
			if err != nil || status != http.StatusOK {
				continue // not listening yet, or no episode is wanted
			}
			mu.Lock()
			groups[label][s.Task.Group] = true
			mu.Unlock()
			if _, status := ask("http://"+listen+"/v1", s.APIKey, []said{{"user", label}}); status != http.StatusOK {
				t.Errorf("asking with the key of the session: %d", status)
			}
			if _, status := ask(s.BaseURL, s.APIKey, []said{{"user", label + " again"}}); status != http.StatusOK {
				t.Errorf("asking at the address of the session: %d", status)
			}
			if status, _ := post(s.BaseURL+"/reward", s.APIKey, map[string]any{"reward": 2, "task": label},
				nil); status != http.StatusOK {
				t.Errorf("posting the reward: %d", status)
			}
			return
		}
		t.Error("no session within 100 seconds")
	}
	episodes, stats := play(t, []config.Env{source}, func() {
		var clients sync.WaitGroup
		for _, label := range []string{"a", "b", "a", "b"} {
			clients.Go(func() { client(label) })
		}
		clients.Wait()
		if _, status := ask("http://"+listen+"/v1", "wrong", []said{{"user", "x"}}); status == http.StatusOK {
			t.Error("a wrong key is answered")
		}
	})
	if len(episodes) != 4 {
		t.Fatalf("%d episodes: %v", len(episodes), stats.Failures)
	}
	slices.SortFunc(episodes, func(a, b *episode.Episode) int { return cmp.Compare(a.Label, b.Label) })
	for i, e := range episodes {
		if e.Label != strings.Repeat("a", 2-i/2)[:max(0, 1-i/2)]+strings.Repeat("b", i/2) || e.Score != 2 ||
			len(e.Contexts) != 2 {
			t.Errorf("episode %d: task %q, score %v, contexts %v", i, e.Label, e.Score, e.Contexts)
		}
	}
	if len(groups["a"]) != 1 || len(groups["b"]) != 1 {
		t.Errorf("groups of the labels: %v", groups)
	}
}

func TestOnlyThisMachineIsAnswered(t *testing.T) {
	if _, err := openTraining(rollout.GatewayOptions{Listen: "0.0.0.0:0"}); err == nil {
		t.Error("the gateway listens to everybody")
	}
}

// The second client of a label waits for the other member of its group, though a session of another group is offered.
func TestALabelWaitsForItsGroup(t *testing.T) {
	tokenizer, err := policyinit.BytesOnly()
	if err != nil {
		t.Fatal(err)
	}
	s := New(tokenizer, 1024, time.Hour)
	s.training = true
	open := func(seed int64, batch int) *Session {
		one, err := s.open("", rollout.Rules{Task: envs.Task{Seed: seed, Stream: "train"}, Members: 2, Batch: batch})
		if err != nil {
			t.Fatal(err)
		}
		one.Offer()
		return one
	}
	claims := func(label string, want *Session) {
		t.Helper()
		if got, err := s.claim(label); got != want || (want == nil) != errors.Is(err, errNobody) {
			t.Errorf("%q got %p (%v), want %p", label, got, err, want)
		}
	}
	claims("a", open(0, 1))
	second := open(1, 1)
	claims("a", nil)
	claims("b", second)
	claims("a", open(0, 1))
	claims("a", open(2, 1)) // its group is complete
	claims("", open(3, 1))
	claims("", open(4, 1))
	claims("b", open(5, 2)) // the batch of its incomplete group is over
}

// One client has no more than half of the sessions, and its own closed ones make room for its next.
func TestNoClientTakesAllSessions(t *testing.T) {
	tokenizer, err := policyinit.BytesOnly()
	if err != nil {
		t.Fatal(err)
	}
	s := New(tokenizer, 4, time.Hour)
	open := func(client string, want error) *Session {
		t.Helper()
		one, err := s.open(client, rollout.Rules{})
		if !errors.Is(err, want) {
			t.Fatalf("a session of %q: %v, want %v", client, err, want)
		}
		return one
	}
	first := open("a", nil)
	open("a", nil)
	open("a", errFull)
	open("b", nil)
	first.Close()
	open("a", nil)
	if s.sessions[first.id] != nil || len(s.sessions) != 3 {
		t.Errorf("%d sessions, the closed one among them: %v", len(s.sessions), s.sessions[first.id] != nil)
	}
	open("a", errFull)
	open("c", nil)
	open("b", errFull)
}
