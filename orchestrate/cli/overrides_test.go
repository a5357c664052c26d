package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
)

func TestLoadConfig(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	path := filepath.Join(t.TempDir(), "x.toml")
	document := "[model]\npath = 'm'\n[[envs]]\ntag = 'sokoban'\noptions = { boxes = 1 }\n"
	if err := os.WriteFile(path, []byte(document), 0o644); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]struct {
		code int
		text string
	}{
		"train " + path:                               {0, ""},
		"train " + path + " envs.0.groups=10":         {0, ""},
		"train " + path + " rollout.top_p=0.5":        {0, "warning: rollout"},
		"train filter.value=1 " + path:                {2, "comes before"},
		"train " + path + " more.toml":                {2, `got "more.toml"`},
		"train " + path + " envs.0.tag=sokobann":      {2, "sokoban"},
		"train " + path + " envs.0.options.boxs=2":    {2, `override "envs.0.options.boxs=2"`},
		"train " + path + " envs.0.options.boxes=two": {2, `boxes=two": envs.0.options.boxes: `},
		"train " + path + " envs.0.options.boxes=30":  {2, "no 6x6 level with 30 boxes"},
		"train " + path + " run.steps=0 filter.x=1":   {2, "2 problems"},
		"train " + path + ".none":                     {2, "cannot be read"},
	} {
		code, _, stderr := call(t, func(c *cli.Context) error {
			loaded, err := loadConfig(c, playing)
			if err == nil && loaded.Envs[0].Tag == "" {
				err = fmt.Errorf("loaded %+v", loaded)
			}
			return err
		}, strings.Fields(line)...)
		if code != want.code || !strings.Contains(stderr, want.text) || want.text == "" && stderr != "" {
			t.Errorf("gyre %s: exit %d, %q; want exit %d with %q", line, code, stderr, want.code, want.text)
		}
		if strings.Count(stderr, "unknown option") > 1 || strings.Count(stderr, "unknown environment tag") > 1 {
			t.Errorf("gyre %s: reported twice: %s", line, stderr)
		}
	}
}

func TestExperimentsNameRealEnvironments(t *testing.T) {
	configs, err := filepath.Abs("../../configs")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(configs, "*.toml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no experiments found (%v)", err)
	}
	dir := t.TempDir()
	dataSets(t, dir)
	t.Chdir(dir)
	for _, file := range files {
		if _, err := config.Load(file, nil, experiment.CheckEnvironments(t.Context())); err != nil {
			t.Error(err)
		}
	}
}

func TestConfigTranslate(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "mine.toml")
	code, stdout, stderr := runIn(t, dir, "config", "translate", "python", "train.py", "--config-name", "_2_sokoban",
		"trainer.gradient_analysis_every=50",
		"es_manager.train.env_groups=4", "trainer.resume_mode=auto", "trainer.nnodes=2", "model_path="+tinyPolicy(t),
		"-o", file)
	if code != 0 || stdout != "" || !strings.Contains(stderr, "no counterpart: trainer.nnodes=2: ") ||
		!strings.Contains(stderr, "gyre train "+file+" --resume") {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if text := string(readFile(t, file)); !strings.Contains(text, "every = 50") ||
		!strings.Contains(text, "groups = 4") {
		t.Errorf("the document is\n%s", text)
	}
	mustIn(t, dir, "train", file, "--dry-run")
	for _, c := range []struct {
		want, document string
		args           []string
	}{
		{"expected an integer, got the string", "# To be mended before this can run:", []string{"es_manager.train.env_configs.tags=[sokoban]",
			"custom_envs.sokoban.env_config.size=7x"}},
		{"exclude one another", "", []string{"--config-name", "base", "--train-sh", "sokoban"}},
		{"nothing to translate", "", nil},
	} {
		code, stdout, stderr := runIn(t, dir, append([]string{"config", "translate"}, c.args...)...)
		if code != 2 || !strings.Contains(stderr, c.want) || !strings.Contains(stdout, c.document) ||
			(c.document == "") != (stdout == "") {
			t.Errorf("%v: exit code %d, want 2 with %q\n%s%s", c.args, code, c.want, stdout, stderr)
		}
	}
}
