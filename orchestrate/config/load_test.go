package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gyre/internal/settings"
)

const smallest = "[model]\npath = 'm'\n[[envs]]\ntag = 'bandit'\n"

func parse(t *testing.T, document string, overrides ...string) *Config {
	t.Helper()
	c, err := Parse("x.toml", []byte(document), overrides)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// failures returns the problems of a document that must have some.
func failures(t *testing.T, document string, overrides ...string) []settings.Problem {
	t.Helper()
	_, err := Parse("x.toml", []byte(document), overrides)
	var all *settings.Error
	if !errors.As(err, &all) || !errors.Is(err, settings.ErrInvalid) {
		t.Fatalf("error %v, want an *settings.Error", err)
	}
	return all.Problems
}

func TestDefaults(t *testing.T) {
	c := parse(t, smallest)
	if c.Run.Steps != 200 || c.Run.Seed != 1 || c.Actor.LR != 1e-6 || c.Actor.Betas != [2]float64{.9, .999} ||
		!c.Algorithm.NormByStd || c.Rollout.ActionSeparator != "||" || c.Rollout.FormatPenalty != -.1 ||
		c.Envs[0].Groups != 8 || c.Envs[0].GroupSize != 16 || c.SFT.Schedule != "cosine" {
		t.Errorf("defaults are not those of the tags: %+v", c)
	}
	want := c.Envs[0]
	want.Groups, want.GroupSize = 512, 1
	if small := parse(t, smallest, "actor.mini_batch=16"); small.Critic.MiniBatch != 16 {
		t.Errorf("the critic's mini-batch is %d, not the actor's", small.Critic.MiniBatch)
	}
	if len(c.Validation.Envs) != 1 || !reflect.DeepEqual(c.Validation.Envs[0], want) {
		t.Errorf("validation sources %+v, want %+v", c.Validation.Envs, want)
	}
	if warnings := c.Warnings(); len(warnings) != 0 {
		t.Errorf("the defaults warn: %q", warnings)
	}
}

// Gradients are analysed on a batch of its own as soon as its shape is another than the training batch's.
func TestSeparate(t *testing.T) {
	c := parse(t, smallest)
	groups, size := c.Envs[0].Groups, c.Envs[0].GroupSize
	for _, x := range []struct {
		groups, size int
		want         bool
	}{{0, 0, false}, {groups, size, false}, {groups + 1, 0, true}, {0, size + 1, true}} {
		if c.Analysis.Groups, c.Analysis.GroupSize = x.groups, x.size; c.Separate() != x.want {
			t.Errorf("%d groups of %d beside %d of %d: %v", x.groups, x.size, groups, size, !x.want)
		}
	}
}

func TestFile(t *testing.T) {
	c, err := Load("testdata/full.toml", nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Run.Name != "full" || c.Envs[1].Tag != "bandit" || c.Actor.Betas[0] != .8 || c.Validation.Temperature != 0 {
		t.Errorf("read as %+v", c)
	}
	if !reflect.DeepEqual(c.Envs[0].Options, map[string]any{"size": []any{int64(6), int64(6)}, "boxes": int64(1)}) ||
		c.Envs[1].Options["arms"] != "[not a table]\n" {
		t.Errorf("options %v, %v", c.Envs[0].Options, c.Envs[1].Options)
	}
	if c.Algorithm.KLEstimator != "k3+" || c.Actor.LossAggregation != "seq-mean-token-mean" {
		t.Errorf("spellings kept: %q, %q", c.Algorithm.KLEstimator, c.Actor.LossAggregation)
	}
	if v := c.Validation.Envs[0]; v.Groups != 16 || v.GroupSize != 1 || v.MaxTurns != 5 || v.Options["arms"] == nil {
		t.Errorf("validation source %+v, want the training source's options with 16 groups of one", v)
	}
}

func TestSpellings(t *testing.T) {
	for override, want := range map[string]func(*Config) bool{
		"algorithm.kl_estimator=kl":          func(c *Config) bool { return c.Algorithm.KLEstimator == "k1" },
		"algorithm.kl_estimator=mse+":        func(c *Config) bool { return c.Algorithm.KLEstimator == "k2+" },
		"algorithm.kl_estimator=low_var_kl":  func(c *Config) bool { return c.Algorithm.KLEstimator == "k3" },
		"algorithm.kl_estimator=K3":          func(c *Config) bool { return c.Algorithm.KLEstimator == "k3" },
		"algorithm.kl_estimator=abs":         func(c *Config) bool { return c.Algorithm.KLEstimator == "abs" },
		"filter.metric=reward_std":           func(c *Config) bool { return c.Filter.Metric == "reward_variance" },
		"filter.metric=entropy_std":          func(c *Config) bool { return c.Filter.Metric == "entropy_variance" },
		"algorithm.advantage=reinforce++":    func(c *Config) bool { return c.Algorithm.Advantage == "reinforce_pp" },
		"actor.loss_aggregation=token_mean":  func(c *Config) bool { return c.Actor.LossAggregation == "token-mean" },
		"rollout.normalize_within=group":     func(c *Config) bool { return c.Rollout.NormalizeWithin == "state" },
		"filter.strategy=Top-P":              func(c *Config) bool { return c.Filter.Strategy == "top_p" },
		"algorithm.advantage=REINFORCE++":    func(c *Config) bool { return c.Algorithm.Advantage == "reinforce_pp" },
		"algorithm.advantage=BRPO":           func(c *Config) bool { return c.Algorithm.Advantage == "brpo" },
		"algorithm.kl_estimator=low-var-kl+": func(c *Config) bool { return c.Algorithm.KLEstimator == "k3+" },
		"algorithm.advantage=reinforce_plus_plus_baseline": func(c *Config) bool {
			return c.Algorithm.Advantage == "reinforce_pp_baseline"
		},
	} {
		if !want(parse(t, smallest, override)) {
			t.Errorf("%s was not understood", override)
		}
	}
}

func TestOverrides(t *testing.T) {
	c := parse(t, smallest, "filter.value=.8", "run.name=2024", "run.seed=7", "envs.0.groups=4",
		"envs.0.options.boxes=2",
		"envs.0.options.size=[5, 6]", "envs.1.tag=sokoban", "rollout.think=false", "actor.lr=1e-4",
		"actor.betas=[0.5,0.6]",
		"validation.envs.0.groups=3", "run.output=a b", "filter.include_zero=False", "model.reference=")
	if c.Filter.Value != .8 || c.Run.Name != "2024" || c.Run.Seed != 7 || c.Envs[0].Groups != 4 || c.Rollout.Think ||
		c.Actor.LR != 1e-4 || c.Actor.Betas != [2]float64{.5, .6} || c.Run.Output != "a b" || c.Filter.IncludeZero {
		t.Errorf("overrides not applied: %+v", c)
	}
	if !reflect.DeepEqual(c.Envs[0].Options, map[string]any{"boxes": int64(2), "size": []any{int64(5), int64(6)}}) {
		t.Errorf("options %#v", c.Envs[0].Options)
	}
	if len(c.Envs) != 2 || c.Envs[1].Tag != "sokoban" || c.Envs[1].GroupSize != 16 {
		t.Errorf("appended source %+v", c.Envs)
	}
	if len(c.Validation.Envs) != 1 || c.Validation.Envs[0].Tag != "bandit" || c.Validation.Envs[0].Groups != 3 ||
		c.Validation.Envs[0].Options["boxes"] != int64(2) {
		t.Errorf("validation sources %+v", c.Validation.Envs)
	}
}

func TestProblems(t *testing.T) {
	for _, c := range []struct{ line, key, message string }{
		{"[filter]\nvlaue = 0.9", "filter.vlaue", "did you mean value?"},
		{"[filters]\nvalue = 0.9", "filters", "did you mean filter?"},
		{"[filter]\nlr = 0.9", "filter.lr", "lr belongs to [actor]"},
		{"[actor]\nlr = 'fast'", "actor.lr", `expected a number, got the string "fast"`},
		{"[run]\nsteps = 10.0", "run.steps", "expected an integer, got the number 10"},
		{"[run]\nsteps = 0", "run.steps", "expected an integer >= 1, got 0"},
		{"[run]\nseed = -1", "run.seed", "expected an integer >= 0, got -1"},
		{"[run]\nname = 5", "run.name", "expected a string, got the integer 5"},
		{"[run]\nname = 'a/b'", "run.name", "name for a folder"},
		{"[rollout]\nthink = 1", "rollout.think", "expected true or false"},
		{"[rollout]\ntop_p = 1.5", "rollout.top_p", "> 0 and <= 1, got 1.5"},
		{"[rollout]\nmin_p = 1.0", "rollout.min_p", ">= 0 and < 1, got 1"},
		{"[rollout]\nformat_penalty = nan", "rollout.format_penalty", "finite"},
		{"[actor]\nbetas = [0.9]", "actor.betas", "a list of 2 numbers, got a list of 1"},
		{"[actor]\nbetas = [0.9, 1.0]", "actor.betas.1", ">= 0 and < 1"},
		{"[algorithm]\nadvantage = 'grppo'", "algorithm.advantage", "did you mean grpo?"},
		{"[algorithm]\nadvantage = 'ppo'", "algorithm.advantage", "did you mean gae"},
		{"[run]\nloggers = 'wandb'", "run.loggers",
			`a list is written ["wandb"], on a command line 'run.loggers=["wandb"]'`},
		{"[algorithm]\nadvantage = 'magic'", "algorithm.advantage", "expected one of gae, bi_level_gae, grpo"},
		{"[algorithm]\nadvantage = 'bi_level_gae'", "algorithm.advantage", "rollout.turn_rewards = true"},
		{"[algorithm]\nadvantage = 'mt_grpo'", "algorithm.advantage", "mt_grpo needs a reward per turn"},
		{"[algorithm]\nsoft_reweight = true", "algorithm.soft_reweight", "grpo"},
		{"[actor]\nmini_batch = 129", "actor.mini_batch", "plays only 128"},
		{"[critic]\nmini_batch = 129", "critic.mini_batch", "plays only 128"},
		{"[actor]\nclip_dual = 0.5", "actor.clip_dual", "a number > 1"},
		{"groups = 4294967296\ngroup_size = 4294967296", "envs.0.groups", "1.845e+19 episodes"},
		{"[filter]\nvalue = 0", "filter.value", "a share"},
		{"[filter]\nstrategy = 'top_k_abs'\nvalue = 2.5", "filter.value", "integer >= 1"},
		{"[filter]\nstrategy = 'top_k_abs'\nvalue = 9", "filter.value", "9 of 8 groups"},
		{"[analysis]\nenabled = false\nonly = true", "analysis.only", "analysis.enabled"},
		{"[analysis]\ngroup_size = 1", "analysis.group_size", "at least 2"},
		{"[rollout]\nmax_tokens = 3600", "rollout.max_length", "no room"},
		{"[lora]\nrank = -1", "lora.rank", ">= 0 and <= 4096"},
		{"[lora]\nalpha = 16", "lora.rank", "missing"},
		{"[lora]\nrank = 8\ntargets = 'atention'", "lora.targets", "did you mean attention?"},
		{"[lora]\nrank = 8\ntargets = ['q_proj', 'k_porj']", "lora.targets", "did you mean k_proj?"},
		{"[lora]\nrank = 8\ntargets = 7", "lora.targets", "expected names"},
		{"[lora]\nrank = 8\ntargets = []", "lora.targets", "at least one"},
		{"[lora]\nrank = 8\nalhpa = 16", "lora.alhpa", "did you mean alpha?"},
		{"[lora]\nrank = 8\nplus = 16", "lora.plus", "is gone"},
		{"[[validation.envs]]\ntag = 'bandit'\ngruops = 3", "validation.envs.0.gruops", "did you mean groups?"},
	} {
		problems := failures(t, smallest+c.line+"\n")
		p := problems[0]
		if len(problems) != 1 || p.Key != c.key || !strings.Contains(p.Message, c.message) {
			t.Errorf("%q: %v; want one problem with %s: …%s…", c.line, problems, c.key, c.message)
		}
		if last := strings.Split(c.line, "\n"); p.Line == 0 || !strings.Contains(c.line, p.Text) || p.Line < 5 ||
			p.Line > 4+len(last) {
			t.Errorf("%q: located at line %d, %q", c.line, p.Line, p.Text)
		}
	}
}

func TestGroupsOfOne(t *testing.T) {
	alone := smallest + "group_size = 1\ngroups = 64\n[analysis]\nenabled = false\n"
	parse(t, alone)
	for _, c := range []struct{ override, key string }{
		{"algorithm.advantage=grpo", "algorithm.advantage"}, {"algorithm.advantage=rloo", "algorithm.advantage"},
		{"filter.value=0.5", "filter.metric"}, {"analysis.enabled=true", "analysis.enabled"},
	} {
		problems := failures(t, alone, c.override)
		if len(problems) != 1 || problems[0].Key != c.key {
			t.Errorf("%s: %v, want one problem with %s", c.override, problems, c.key)
		}
	}
	parse(t, alone, "algorithm.advantage=brpo")
	parse(t, alone, "filter.value=0.5", "filter.metric=reward")
}

func TestAllProblemsTogether(t *testing.T) {
	document := "[model]\n[[envs]]\ngroups = 0\n[actor]\nlr = 'x' # slow\nclip_hihg = 1\n"
	_, err := Parse("bad.toml", []byte(document), []string{"run.stesp=3", "filter.value", "envs.3.groups=1",
		"actor.lr.x=1"})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"9 problems", "bad.toml:1: model.path: missing", "bad.toml:2: envs.0.tag: missing",
		"bad.toml:3: envs.0.groups: expected an integer >= 1, got 0", "3 | groups = 0",
		"bad.toml:6: actor.clip_hihg: unknown key (did you mean clip_high?)",
		`override "run.stesp=3": run.stesp: unknown key (did you mean steps?)`,
		`override "filter.value": expected key=value`,
		`override "envs.3.groups=1": envs.3.groups: envs has 1 elements`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in:\n%v", want, err)
		}
	}
}

func TestSyntaxErrors(t *testing.T) {
	p := failures(t, "[run]\nname = \n")[0]
	if p.Line != 2 || !strings.Contains(p.String(), "x.toml:2: not valid TOML") {
		t.Errorf("problem %v", p)
	}
	if p := failures(t, "name = \x1b[31m\x01"+strings.Repeat("é", 1000))[0].String(); len(p) > 400 ||
		strings.Contains(p, "\x1b") {
		t.Errorf("a file's control characters reach the terminal, or too much of it: %q", p)
	}
	for path, want := range map[string]string{"testdata/none.toml": "none.toml: cannot be read",
		"testdata/fll.toml": "did you mean testdata/full.toml?"} {
		if _, err := Load(path, nil); !errors.Is(err, settings.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("missing file: %v, want %q", err, want)
		}
	}
}

func TestChecksSeeLines(t *testing.T) {
	check := func(c *Config, report func(key, format string, args ...any)) {
		report("envs.0.options.boxs", "unknown option of %s", c.Envs[0].Tag)
	}
	_, err := Parse("x.toml", []byte(smallest+"options = { boxs = 1 }\n"), nil, check)
	if err == nil || !strings.Contains(err.Error(), "x.toml:5: envs.0.options.boxs: unknown option of bandit") {
		t.Errorf("error %v", err)
	}
}

func TestResolvedRoundTrips(t *testing.T) {
	first, err := Load("testdata/full.toml", []string{"rollout.min_p=0.1", "run.seed=9007199254740993",
		"lora.rank=8", "lora.targets=[\"attention\", \"up_proj\"]"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := Resolved(first)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Parse("resolved", text, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if !reflect.DeepEqual(first, second) {
		t.Errorf("%+v\nis not\n%+v", second, first)
	}
	again, err := Resolved(second)
	if err != nil || !bytes.Equal(text, again) {
		t.Errorf("a second pass differs (%v)", err)
	}
}

// A run's configuration may have keys that are no more, with what is done now anyway; other values are refused.
func TestRemovedKeys(t *testing.T) {
	before, err := Resolved(parse(t, smallest))
	if err != nil {
		t.Fatal(err)
	}
	text := string(before)
	for table, lines := range map[string]string{"[engine]": "prefix_cache = true\nspeculative_tokens = 8\ndraft_model = ''",
		"[checkpoint]": "dtype = 'float32'", "[algorithm]": "entropy_step = 0.0001"} {
		text = strings.Replace(text, table+"\n", table+"\n"+lines+"\n", 1)
	}
	after, err := Resolved(parse(t, text))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("a run's keys change its configuration: %v", err)
	}
	if changes, err := Compare([]byte(text), after); err != nil || len(changes) != 0 {
		t.Errorf("changes %v, %v", changes, err)
	}
	for override, want := range map[string]string{"engine.prefix_cache=false": "is always shared",
		"checkpoint.dtype=bfloat16": "gyre model convert", "envs.0.sampling.0.top_p=0.9": "envs.0.sampling: is gone"} {
		if p := failures(t, smallest, override); len(p) != 1 || !strings.Contains(p[0].String(), want) {
			t.Errorf("%s: %v, want …%s…", override, p, want)
		}
	}
	if changes, err := Compare([]byte("[lora]\nplus = 16.0\n"), nil); err != nil || len(changes) != 1 {
		t.Errorf("changes %v, %v", changes, err)
	}
}

func TestChanges(t *testing.T) {
	resolved := func(overrides ...string) []byte {
		text, err := Resolved(parse(t, smallest, overrides...))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	sentences := func(changes []Change, err error) (list []string, _ error) {
		for _, c := range changes {
			list = append(list, c.String())
		}
		return list, err
	}
	got, err := sentences(Compare(resolved("envs.0.options.a=1"), resolved("actor.lr=0.5", "envs.0.options.b='x'",
		"envs.0.groups=10")))
	want := []string{"actor.lr = 0.5 was 1e-06", "envs.0.groups = 10 was 8", "envs.0.options.a = 1 is gone",
		`envs.0.options.b = "x" is new`,
		"validation.envs.0.options.a = 1 is gone", `validation.envs.0.options.b = "x" is new`}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("changes %q, %v; want %q", got, err, want)
	}
	if same, err := Compare(resolved(), resolved()); err != nil || len(same) != 0 {
		t.Errorf("changes %q, %v of a configuration from itself", same, err)
	}
}

func TestWarnings(t *testing.T) {
	for override, want := range map[string]string{
		"rollout.top_p=0.9":             "another policy",
		"rollout.format_penalty=0.5":    "rewards malformed replies",
		"filter.loss_scaling=sqrt":      "no effect",
		"algorithm.norm_by_std=false":   "no effect on gae",
		"model.reference=x":             "not used",
		"algorithm.kl_top_k=8":          "kl_top_k has no effect",
		"algorithm.kl_control=adaptive": "kl_in",
		"actor.mini_batch=50":           "does not divide",
		"critic.warmup=300":             "never learns",
		"analysis.num_buckets=9":        "8 groups",
		"lora.rank=8":                   "looks like full tuning's",
		"run.steps=201":                 "",
	} {
		warnings := strings.Join(parse(t, smallest, override).Warnings(), "\n")
		if !strings.Contains(warnings, want) || (want == "") != (warnings == "") {
			t.Errorf("%s: warnings %q, want %q", override, warnings, want)
		}
	}
	for _, higher := range []string{"lora.lr_scale=10", "actor.lr=1e-5"} {
		if w := parse(t, smallest, "lora.rank=8", higher).Warnings(); len(w) != 0 {
			t.Errorf("%s: warnings %q", higher, w)
		}
	}
	for estimator, alike := range map[string]bool{"grpo": true, "brpo": true, "james_stein": true, "turn_rloo": false,
		"gigpo": false, "optimal_token_baseline": false} {
		c := parse(t, smallest, "algorithm.advantage="+estimator, "rollout.turn_rewards=true",
			"actor.mini_batch=2", "envs.0.group_size=2")
		if strings.Contains(strings.Join(c.Warnings(), "\n"), "credits all of its tokens alike") != alike {
			t.Errorf("%s with turn rewards: %q", estimator, c.Warnings())
		}
	}
	for estimator, want := range map[string]bool{"turn_rloo": true, "gigpo": false} {
		c := parse(t, smallest, "algorithm.advantage="+estimator, "algorithm.step_weight=2",
			"actor.mini_batch=2", "envs.0.group_size=2")
		if strings.Contains(strings.Join(c.Warnings(), "\n"), "step_weight has no effect") != want {
			t.Errorf("%s with a weight of states: %q", estimator, c.Warnings())
		}
	}
}

func TestExperimentsLoad(t *testing.T) {
	files, err := filepath.Glob("../../configs/*.toml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if _, err := Load(file, nil); err != nil {
			t.Errorf("%v", err)
		}
	}
	if len(files) == 0 {
		t.Error("configs holds no experiments")
	}
}

// Any document must come back as a configuration or an *settings.Error, never as a panic.
func FuzzParse(f *testing.F) {
	full, err := os.ReadFile("testdata/full.toml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full, "filter.value=0.8")
	f.Add([]byte("envs = [{tag = 'a'}, {tag = 'b'}]\nactor.betas = [1]"), "envs.1.tag=x")
	f.Add([]byte("[envs]\ntag = 1\n[run.name]\nx = 1"), "envs.0=3")
	f.Add([]byte("validation = 3\n[[run]]\n[[run]]"), "run.0.name=4")
	f.Fuzz(func(t *testing.T, data []byte, override string) {
		if _, err := Parse("x", data, []string{override}); err != nil && !errors.Is(err, settings.ErrInvalid) {
			t.Errorf("%v is no configuration error", err)
		}
	})
}

// What is wrong with an override is blamed on it, and not on the file, which may have nothing to do with it.
func TestOverridesAreBlamed(t *testing.T) {
	document := "[model]\npath = 'm'\n[[envs]]\ntag = 'bandit'\n"
	for override, want := range map[string]string{
		"envs[0].groups=4":             "envs.0.groups=4",
		"fliter.value=0.8":             "did you mean filter?",
		"nonsense.deeper.x=1":          "unknown key",
		"envs.1.groups=3":              "envs.1.tag: missing",
		"rollout.temperature=0":        ">= 0.0001",
		"validation.envs.0.goups=4":    "did you mean groups?",
		"validation.temperature=1e-5":  "0 (greedy)",
		"rollout.temperature=20000":    "<= 10000",
		"engine.kv_mib=99999999999999": "<= 16777216",
	} {
		_, err := Parse("x.toml", []byte(document), []string{override})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("override %q", override)) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant the override and %q", override, err, want)
		}
	}
	for _, override := range []string{"rollout.temperature=1e-4", "validation.temperature=0"} {
		if _, err := Parse("x.toml", []byte(document), []string{override}); err != nil {
			t.Errorf("%s: %v", override, err)
		}
	}
}

// A run that is given its episodes needs no [[envs]], and the sizes in it bind nothing; other mistakes stay mistakes.
func TestGivenEpisodesNeedNoEnvironments(t *testing.T) {
	given := func(c *Config) bool { return c.SFT.Data == "" }
	load := func(document string, overrides ...string) (*Config, error) {
		path := filepath.Join(t.TempDir(), "x.toml")
		if err := os.WriteFile(path, []byte(document), 0o644); err != nil {
			t.Fatal(err)
		}
		return LoadFor(given, path, overrides)
	}
	const model = "[model]\npath = 'm'\n"
	const sized = model + "[[envs]]\ntag = 'bandit'\ngroups = 2\ngroup_size = 1\n[algorithm]\nadvantage = 'grpo'\n" +
		"[filter]\nstrategy = 'top_k_abs'\nvalue = 5\n[actor]\nmini_batch = 999\n"
	for _, document := range []string{model, sized} {
		c, err := load(document)
		if err != nil {
			t.Errorf("%s: %v", document, err)
			continue
		}
		if w := c.Given().Warnings(); len(w) != 0 {
			t.Errorf("%s: warnings %q", document, w)
		}
		if _, err := load(document, "sft.data=f"); err == nil {
			t.Errorf("%s: accepted for playing", document)
		}
	}
	if _, err := load(model + "[actor]\nclip_dual = 0.5\n"); err == nil {
		t.Error("clip_dual = 0.5 was accepted")
	}
}

// What a run holds in its rollouts follows the most episodes that it ever plays together.
func TestEpisodesAtOnce(t *testing.T) {
	document := "[model]\npath = 'm'\n[run]\nvalidate_first = false\nvalidate_every = 0\n[analysis]\nenabled = false\n" +
		"[[envs]]\ntag = 'bandit'\ngroups = 4\ngroup_size = 8\n[[validation.envs]]\ntag = 'bandit'\ngroups = " +
		"50\ngroup_size = 2\n"
	for overrides, want := range map[string]int{
		"":                        32,
		"run.validate_every=5":    100,
		"run.validate_first=true": 100,
		"analysis.enabled=true":   32,
		"analysis.enabled=true analysis.groups=6":                          48,
		"analysis.enabled=true analysis.group_size=16":                     64,
		"analysis.groups=600":                                              32,
		"run.validate_every=5 analysis.enabled=true analysis.groups=20":    160,
		"run.validate_every=5 envs.0.groups=20 validation.envs.0.groups=1": 160,
	} {
		c, err := Parse("x.toml", []byte(document), strings.Fields(overrides))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.AtOnce(); got != want {
			t.Errorf("%s: %d episodes at once, want %d", overrides, got, want)
		}
	}
}

// Every estimator that algorithm.advantage takes stands in the table of what they need.
func TestNeedsOfTheEstimators(t *testing.T) {
	field, _ := reflect.TypeFor[Algorithm]().FieldByName("Advantage")
	got, want := slices.Sorted(maps.Keys(estimators)), strings.Split(field.Tag.Get("oneof"), ",")
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("config.Algorithm.Advantage takes %s; the table has %s", want, got)
	}
}

// A preset sets the keys that neither the file nor an override gives, and says which.
func TestPresetOfTheAlgorithm(t *testing.T) {
	plain := []byte("[model]\npath = \"m\"\n[[envs]]\ntag = \"sokoban\"\n")
	file := append([]byte("[algorithm]\npreset = \"dapo\"\n[actor]\nclip_high = 0.3\n"), plain...)
	c, err := Parse("a.toml", file, []string{"algorithm.entropy_coef=0.002"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Algorithm.Advantage != "grpo" || c.Actor.ClipHigh != 0.3 || c.Algorithm.EntropyCoef != 0.002 ||
		c.Filter.IncludeZero || c.Actor.ClipDual != 0 {
		t.Errorf("dapo gives %+v, %+v, %+v", c.Algorithm, c.Actor, c.Filter)
	}
	if note := c.PresetNote(); !strings.Contains(note, "algorithm.advantage = grpo") ||
		!strings.Contains(note, "given already: algorithm.entropy_coef, actor.clip_high") {
		t.Errorf("the note is %q", note)
	}
	for name, settings := range presets {
		c, err := Parse("a.toml", plain, []string{"algorithm.preset=" + name})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		// Its keys written out instead of its name give the same configuration.
		same, err := Parse("a.toml", plain, settings)
		if err != nil {
			t.Fatal(err)
		}
		c.preset, c.Algorithm.Preset = "", ""
		if !reflect.DeepEqual(c, same) {
			t.Errorf("%s gives\n%+v, written out\n%+v", name, c, same)
		}
	}
	if _, err := Parse("a.toml", nil, []string{"algorithm.preset=dappo"}); err == nil || !strings.Contains(err.Error(), "dapo") {
		t.Errorf("an unknown preset: %v", err)
	}
}

// A mini-batch that nobody gave fits the step; one that is given stays.
func TestMiniBatchFitsTheStep(t *testing.T) {
	for _, c := range []struct {
		overrides []string
		want      int
	}{
		{nil, 32}, // of 128
		{[]string{"envs.0.groups=1", "envs.0.group_size=4"}, 4},
		{[]string{"envs.0.groups=3"}, 24},
		{[]string{"envs.0.groups=1", "envs.0.group_size=37"}, 19},
		{[]string{"envs.0.groups=3", "actor.mini_batch=32"}, 32},
	} {
		if got := parse(t, smallest, c.overrides...); got.Actor.MiniBatch != c.want || got.Critic.MiniBatch != c.want {
			t.Errorf("%v: %d and %d episodes, want %d", c.overrides, got.Actor.MiniBatch, got.Critic.MiniBatch, c.want)
		}
	}
}

// A run that never validates does not do so before its first step either, unless it is asked to.
func TestNoValidationIsNone(t *testing.T) {
	for more, want := range map[string]bool{"": true, "validate_every = 0": false,
		"validate_every = 0\nvalidate_first = true": true, "validate_every = 5": true} {
		c, err := Parse("x.toml", []byte("[run]\n"+more+"\n[model]\npath = 'm'\n[[envs]]\ntag = 'Bandit'\n"), nil)
		if err != nil || c.Run.ValidateFirst != want {
			t.Errorf("%q: %v, %v", more, c.Run.ValidateFirst, err)
		}
	}
}
