package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gyre/orchestrate/run/metrics"
)

// documented turns the names in docs/metrics.md into patterns: {a,b} are alternatives, {tag} is any word, … any
// beginning.
func documented(t *testing.T) []*regexp.Regexp {
	t.Helper()
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	word := regexp.MustCompile(`\\\{\w+\\\}`)
	list := regexp.MustCompile(`\\\{([\w,@]+)\\\}`)
	var out []*regexp.Regexp
	for _, quoted := range regexp.MustCompile("`[^`\n]+`").FindAllString(string(page), -1) {
		pattern := word.ReplaceAllString(regexp.QuoteMeta(strings.Trim(quoted, "`")), `[^/]+`)
		pattern = list.ReplaceAllStringFunc(pattern, func(s string) string {
			return "(" + strings.ReplaceAll(strings.Trim(s, `\{}`), ",", "|") + ")"
		})
		pattern = strings.NewReplacer("…", ".+", "@K", `@\d+`).Replace(pattern)
		out = append(out, regexp.MustCompile("^"+pattern+"$"))
	}
	return out
}

// The page on metrics names what runs really log. (The gradient analysis composes its names from buckets and
// components.)
func TestMetricsAreDocumented(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "[algorithm]\nkl_coef = 0.1\n")
	mustIn(t, dir, "train", config, "run.name=ppo", "run.steps=3", "collapse.every=2")
	mustIn(t, dir, "train", config, "run.name=reward", "run.steps=1", "algorithm.kl_in=reward",
		"actor.recompute_logprobs=true", "filter.metric=length")
	mustIn(t, dir, "train", config, "run.name=grpo", "run.steps=1", "algorithm.advantage=grpo",
		"algorithm.soft_reweight=true")
	mustIn(t, dir, "train", config, "run.name=only", "run.steps=1", "analysis.only=true")
	mustIn(t, dir, "train", config, "run.name=exit", "run.steps=1", "analysis.exit_after=true")
	mustIn(t, dir, "sft", config, "run.name=sft", "sft.episodes=8", "sft.validation_episodes=2", "sft.epochs=1")
	patterns := documented(t)
	missing := map[string]bool{}
	names := 0
	for _, run := range []string{"ppo", "reward", "grpo", "only", "exit", "sft"} {
		for record, err := range metrics.Read(filepath.Join(dir, "runs", run, "metrics.jsonl")) {
			if err != nil {
				t.Fatal(err)
			}
			for name := range record.Values {
				if strings.HasPrefix(name, "grad_") || strings.HasPrefix(name, "actor/grad_norm/") ||
					strings.HasPrefix(name, "actor/loss/") {
					continue
				}
				names++
				found := false
				for _, p := range patterns {
					found = found || p.MatchString(name)
				}
				if !found {
					missing[name] = true
				}
			}
		}
	}
	for name := range missing {
		t.Errorf("docs/metrics.md does not name %s", name)
	}
	if names < 100 {
		t.Errorf("only %d metrics were looked at", names)
	}
}
