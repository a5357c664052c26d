package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/config"
)

// smaller adds what makes a documented command small: few and short episodes, so many training steps, and two ranks for
// four.
func smaller(words []string, steps int) []string {
	if at := slices.Index(words, "--ranks"); at >= 0 && words[at+1] == "4" {
		words = slices.Clone(words)
		words[at+1] = "2"
	}
	played := []string{"envs.0.groups=4", "envs.0.group_size=4", "actor.mini_batch=8", "critic.mini_batch=8",
		"validation.envs.0.groups=4", "rollout.max_tokens=8"}
	if len(words) > 1 && strings.Contains(words[1], "budget") { // a step is one mini-batch there
		played[2] = "actor.mini_batch=16"
	}
	verb := strings.Join(words[:min(2, len(words))], " ")
	switch {
	case words[0] == "train" || words[0] == "sweep":
		words = append(append(words, played...), fmt.Sprint("run.steps=", steps), "analysis.groups=0")
		if strings.Contains(words[1], "sokoban_") || words[0] == "sweep" { // their boards are long
			words = append(words, "envs.0.max_turns=2", "validation.envs.0.max_turns=2")
		}
	case words[0] == "sft", verb == "env overlap":
		words = append(append(words, played...), "sft.episodes=8", "sft.validation_episodes=2", "sft.epochs=1")
	case words[0] == "eval":
		words = append(words, played[4:]...)
	case words[0] == "analyze":
		words = append(append(words, played...), "analysis.groups=6", "analysis.group_size=4", "filter.strategy=none")
	case verb == "estimator check" && len(words) == 2: // all of them, as the test of their page does
		words = append(words, "reinforce", "turn_rloo")
	case verb == "env play" && slices.Contains(words, "--random"):
		words = append(words, "--episodes", "20")
	}
	if words[0] == "sweep" {
		words = append(words, "--seeds", "1")
		if !slices.Contains(words, "--values") {
			words = append(words, "--values", "0,0.01") // of configs/studies/kl_sweep.toml
		}
	}
	return words
}

// documentedLine is a command of a document, in the words that a shell makes of it.
type documentedLine struct {
	place string
	words []string
}

// documentedLines are the commands that stand in lines of their own, in the order of a document.
func documentedLines(t *testing.T, root, file string) (out []documentedLine) {
	t.Helper()
	text := strings.ReplaceAll(string(readFile(t, filepath.Join(root, file))), "\\\n", " ")
	fenced := false
	command := regexp.MustCompile(`^(?:\./)?(?:gyre|make|bash|torchrun|mpirun|srun|python3?) \S`)
	for number, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		trimmed := strings.TrimSpace(line)
		if !(fenced || strings.HasPrefix(line, "    ")) || !command.MatchString(trimmed) ||
			regexp.MustCompile(` {4,}[^#\s]`).MatchString(trimmed) {
			continue // the last: a column of explanations, as in a list of files
		}
		for part := range strings.SplitSeq(regexp.MustCompile(`\s+#.*$`).ReplaceAllString(trimmed, ""), " && ") {
			var words []string
			for _, word := range regexp.MustCompile(`(?:[^\s"']|"[^"]*"|'[^']*')+`).FindAllString(part, -1) {
				words = append(words, strings.NewReplacer(`"`, "", "'", "").Replace(word))
			}
			words[0] = strings.TrimPrefix(words[0], "./")
			out = append(out, documentedLine{fmt.Sprintf("%s:%d", file, number+1), words})
		}
	}
	return out
}

// notRun are the documented commands that the test does not run, by what they begin with, and why.
var notRun = map[string]string{
	"make ":                    "builds, tests and measures; make demo is gyre demo",
	"bash scripts/get-smol":    "downloads; a stand-in lies in its place",
	"gyre model pull":          "downloads; a stand-in lies in its place",
	"gyre why":                 "needs the checkpoint of the step before; its own test keeps it",
	"gyre model merge":         "needs an adapter; its own test makes one",
	"gyre env play Remote":     "needs a server, which envs/remote's tests start",
	"gyre env play tasks path": "needs a folder of tasks; the tests of envs/tasks make some",
	"gyre doctor --device":     "needs a GPU",
	"gyre generate --model D":  "needs a GPU",
	"torchrun ":                "needs a launcher; the tests of ranks start it where it is",
	"mpirun ":                  "needs a launcher",
	"srun ":                    "needs a launcher",
	"python":                   "is another program's",
	"gyre ui":                  "serves until it is stopped; the tests of its package open it",
	"gyre serve":               "serves until it is stopped; the tests of orchestrate/serve talk to it",
	"gyre chat":                "reads from the terminal; its own test talks to it",
	"gyre config translate":    "needs another program's files; the tests of translate run it",
	"bash ":                    "the tests of scripts run it",
	"gyre search ":             "the tests of searches run it",
	"gyre doctor":              "measures this machine; its own test runs it",
}

// Every command of README and docs runs as it stands there, in order, on what the command before left, in a small form.
func TestDocumentedCommandsRun(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := documentedPlace(t, root)
	files, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d documents, %v", len(files), err)
	}
	names := []string{"README.md", "docs/demo.md"}
	for _, path := range files {
		if name := "docs/" + filepath.Base(path); name != "docs/LOG.md" && name != "docs/commands.md" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	ran, steps := 0, map[string]int{"demo": 2}
	for _, name := range names {
		if out, err := exec.Command("python3", filepath.Join(root, "scripts/docs.py"), "blocks",
			filepath.Join(root, name), dir).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, line := range documentedLines(t, root, name) {
			text := strings.Join(line.words, " ")
			if text == "make demo" {
				if !atomicfile.Exists(dir, "runs/demo") { // again it changes nothing, which TestDemo sees
					takeDemo(t, dir)
				}
				continue
			}
			skipped := strings.Contains(text, "…") || strings.Contains(text, "=cuda")
			for start := range notRun {
				skipped = skipped || strings.HasPrefix(text, start)
			}
			if skipped {
				continue
			}
			words := line.words[1:]
			for i, word := range words { // the demo's last step
				words[i] = strings.Replace(word, "global_step_40", fmt.Sprint("global_step_", steps["demo"]), 1)
			}
			if at := slices.IndexFunc(words, func(w string) bool { return w == "CONFIG" }); at >= 0 {
				words[at] = "configs/demo.toml"
				words = append(words, "run.name="+fmt.Sprint("config", ran), "model.path=runs/demo-sft/best/actor")
			}
			if words[0] == "train" && !slices.Contains(words, "--dry-run") {
				run := runNameOf(t, dir, words)
				steps[run]++
				words = smaller(words, steps[run])
			} else if !slices.Contains(words, "--dry-run") {
				words = smaller(words, 1)
			}
			ran++
			if code, _, stderr := runIn(t, dir, words...); code != 0 {
				t.Errorf("%s: gyre %s: exit code %d\n%s", line.place, strings.Join(words, " "), code, stderr)
			}
		}
	}
	if ran < 25 {
		t.Errorf("only %d commands were run: has their form changed?", ran)
	}
}

// takeDemo leaves in a folder what the demo leaves.
func takeDemo(t *testing.T, dir string) {
	t.Helper()
	from, _ := smallDemo(t)
	for _, name := range []string{"runs/demo", "runs/demo-sft", "runs/demo-analysis", "models/demo-policy"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(from, name))); err != nil {
			t.Fatal(err)
		}
	}
}

// runNameOf is the name of the run that a training command makes or continues.
func runNameOf(t *testing.T, dir string, words []string) string {
	t.Helper()
	path := filepath.Join(dir, words[1])
	if atomicfile.Exists(path, "config.toml") {
		path = filepath.Join(path, "config.toml")
	}
	var overrides []string
	for _, word := range words[2:] {
		if strings.HasPrefix(word, "run.name=") {
			overrides = append(overrides, word)
		}
	}
	cfg, err := config.Load(path, overrides)
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Run.Name
}

// documentedPlace is a folder with what the documents take for granted: configurations, scripts, and stand-ins for
// what they download.
func documentedPlace(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	link := func(target, name string) { t.Helper(); linkTo(t, target, filepath.Join(dir, name)) }
	for _, name := range []string{"configs", "scripts"} {
		link(filepath.Join(root, name), name)
	}
	for _, name := range []string{"smollm2-135m-instruct", "Qwen2.5-3B", "Qwen2.5-0.5B-Instruct",
		"Qwen2.5-3B-Instruct"} {
		link(tinyPolicy(t), "models/"+name)
	}
	link(tinyPolicy(t), "runs/sokoban_3B_instruct_ragen_main")
	link(filepath.Join(root, "orchestrate/model/checkpoint/convert/testdata/llama.gguf"),
		"SmolLM2-135M-Instruct.Q4_1.gguf")
	rows := ""
	for i := range 8 {
		rows += fmt.Sprintf(`{"group": %d, "ids": [5, 9, 31, 7], "mask": [0, 0, 1, 1], "rewards": [[3, %d.0]]}`+"\n",
			i/4, i%3)
	}
	for name, text := range map[string]string{"episodes.jsonl": rows, "prompts.jsonl": `{"text": "Up or Down?"}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
