package config

import (
	"os"
	"path/filepath"
	"testing"
)

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
