package cli

import (
	"encoding/csv"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gyre/internal/exitcode"
)

// jsonRows decodes what a command printed line by line.
func jsonRows(t *testing.T, text string) (rows []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		var row map[string]any
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		rows = append(rows, row)
	}
	return rows
}

// isPNG wants a picture of some size, which is more than its axes.
func isPNG(t *testing.T, path string) {
	t.Helper()
	if data, err := os.ReadFile(path); err != nil || len(data) < 1000 || string(data[1:4]) != "PNG" {
		t.Errorf("%s: %d bytes, %v, want a picture", path, len(data), err)
	}
}

// What a run has left is read by the verbs that show it, all of one run: gradients of reward components, their history,
// replies, figures and the page.
func TestVerbsThatReadARun(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, partsOfTheReward)
	mustIn(t, dir, "train", config, "envs.0.tag=Arithmetic", "validation.envs.0.tag=Arithmetic", "envs.0.max_turns=1",
		"rollout.prompt=chat", "rollout.max_tokens=24",
		"run.steps=2", "run.validate_every=1", "validation.tracking=true", "components.tracking=true",
		"analysis.every=1", "checkpoint.keep=1")
	at := func(name string) string { return filepath.Join(dir, name) }
	const saved = "runs/tiny/gradient_analysis_sums"

	t.Run("components", func(t *testing.T) {
		keys := mustIn(t, dir, "components", "keys", saved+"/gradients_step_0.npz")
		if !strings.Contains(keys, "40 arrays; components format, length; 20 parameters\n") ||
			strings.Count(keys, "\n") != 22 || !strings.Contains(keys, "…\n") {
			t.Errorf("keys:\n%s", keys)
		}
		if all := mustIn(t, dir, "components", "keys", saved+"/gradients_step_0.npz", "--all"); strings.Count(all,
			"\n") != 41 || !strings.Contains(all, "length/model.embed_tokens.weight\n") {
			t.Errorf("all keys:\n%s", all)
		}
		layers := jsonRows(t, mustIn(t, dir, "components", "layers", saved+"/gradients_step_1.npz", "--json", "--dpi",
			"40"))
		isPNG(t, at("plots/layer_similarity_step_1.png"))
		squares := 0.0
		for _, row := range layers[:len(layers)-1] {
			squares += row["norm_length"].(float64) * row["norm_length"].(float64)
		}
		if last := layers[len(layers)-1]; len(layers) != 5 || last["layer"] != "all" || last["parameters"] != 20.0 ||
			math.Abs(math.Sqrt(squares)/last["norm_length"].(float64)-1) > 1e-6 {
			t.Errorf("the norms of layers give %v for all: %v", math.Sqrt(squares), layers)
		}
		stdout := mustIn(t, dir, "components", "parameter", saved, "--name", "all", "--csv", "all.csv", "--figure",
			"all.png", "--dpi", "40")
		isPNG(t, at("all.png"))
		cells, err := csv.NewReader(strings.NewReader(string(readFile(t, at("all.csv"))))).ReadAll()
		if err != nil || stdout != "" || len(cells) != 3 ||
			!slices.Equal(cells[0], []string{"step", "format_length"}) || cells[2][0] != "1" {
			t.Errorf("printed %q, and the table is %v (%v)", stdout, cells, err)
		}
		cosines := jsonRows(t, mustIn(t, dir, "components", "cosines", "runs/tiny", "--json", "--figure", "none"))
		logged := steadyMetrics(t, at("runs/tiny/metrics.jsonl"))
		if len(cosines) != 2 || cosines[1]["step"] != 2.0 || cosines[1]["length_total"] == nil ||
			cosines[1]["length_total"] != logged[2]["grad_components/cosine/length/total"] {
			t.Errorf("the cosines are %v, and logged were %v", cosines,
				logged[2]["grad_components/cosine/length/total"])
		}
		for _, place := range []string{"runs/tiny", "runs/tiny/reward_tracking_sums",
			"runs/tiny/reward_tracking_sums/all_rewards.json"} {
			rewards := jsonRows(t, mustIn(t, dir, "components", "rewards", place, "--json", "--figure", "rewards.png",
				"--dpi", "40"))
			if len(rewards) != 2 || rewards[1]["samples"] != 8.0 || rewards[1]["actual_length"].(float64) <= 0 {
				t.Errorf("%s: %v", place, rewards)
			}
		}
		isPNG(t, at("rewards.png"))
		prefixes := jsonRows(t, mustIn(t, dir, "components", "perplexity", "runs/tiny/ppl_tracking_sums", "--k", "2",
			"--k", "8", "--json", "--figure", "prefixes.png", "--dpi", "40"))
		isPNG(t, at("prefixes.png"))
		for i, row := range prefixes {
			// The mean of the replies' perplexities is above that of their mean.
			if nll, ppl := row["nll"].(float64), row["ppl"].(float64); row["replies"] != 4.0 ||
				row["k"] != []float64{2, 8}[i%2] || row["step"] != float64(i/2) || ppl < math.Exp(nll) ||
				ppl > 2*math.Exp(nll) {
				t.Errorf("row %d: %v", i, row)
			}
		}
		if len(prefixes) != 6 {
			t.Errorf("%d rows, want two prefixes at the start and after each step", len(prefixes))
		}
	})
	t.Run("report", func(t *testing.T) {
		if stdout := mustIn(t, dir, "report", "runs/tiny"); stdout != "runs/tiny/report.html\n" {
			t.Errorf("printed %q", stdout)
		}
		page := string(readFile(t, at("runs/tiny/report.html")))
		if !strings.Contains(page, "tiny") || !strings.Contains(page, "</html>") ||
			strings.Contains(page, "src=\"http") {
			t.Errorf("the page of %d bytes is not one that stands by itself", len(page))
		}
		if stdout := mustIn(t, dir, "report", "runs/tiny", "runs/tiny"); stdout != "report.html\n" {
			t.Errorf("two runs: printed %q", stdout)
		}
	})
	t.Run("plot", func(t *testing.T) {
		stdout := mustIn(t, dir, "plot", "signal", "mine/before=runs/tiny", "mine/after=runs/tiny", "--out",
			"signal.png", "--dpi", "40")
		isPNG(t, at("signal.png"))
		if !strings.Contains(stdout, "gradient per group") || !strings.HasSuffix(stdout, "\nsignal.png\n") {
			t.Errorf("printed %q", stdout)
		}
		if terminal := mustIn(t, dir, "plot", "runs/tiny", "--terminal"); !strings.Contains(terminal,
			"Arithmetic: validation success in %") || !strings.Contains(terminal, "of 4 episodes") {
			t.Errorf("in the terminal:\n%s", terminal)
		}
		if steps := mustIn(t, dir, "plot", "runs/tiny", "--list-steps"); steps != "1\n2\n" {
			t.Errorf("analysed steps: %q", steps)
		}
	})
	t.Run("overlap", func(t *testing.T) {
		counts := jsonRows(t, mustIn(t, dir, "env", "overlap", config, "--json", "sft.episodes=5",
			"sft.validation_episodes=2"))[0]
		if counts["held_out"] != 4.0 || counts["training"] != 12.0 || counts["demonstrations"] != 7.0 {
			t.Errorf("%v", counts)
		}
		text := mustIn(t, dir, "env", "overlap", config, "--sft=false")
		if !strings.Contains(text, " of 4 held-out first states (") ||
			!strings.Contains(text, "the 0 of demonstrations") {
			t.Errorf("printed %q", text)
		}
	})
	for args, want := range map[string]string{
		"components parameter " + saved + " --name nope": "`gyre components keys` lists them",
		"components rewards runs": "runs has no all_rewards.json, nor a " +
			"folder reward_tracking_DATA with one; components.tracking writes them",
		"components perplexity runs":                                        "validation.tracking writes them",
		"components layers " + saved + "/gradients_step_0.npz --dpi 5":      "--dpi is 5, expected 30 to 1200",
		"components perplexity runs/tiny/ppl_tracking_sums --fixed 0 --k 3": "is 0, expected at least 1",
	} {
		code, stdout, stderr := runIn(t, dir, strings.Fields(args)...)
		if wanted := map[bool]int{true: exitcode.Usage, false: exitcode.Failed}[strings.Contains(want,
			"expected")]; code != wanted || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("gyre %s: exit code %d, printed %q, said %q; want %d and %q", args, code, stdout, stderr, wanted,
				want)
		}
	}
}

// What is wrong with a command line is said in one line, before anything is read, with exit code 2.
func TestWrongArguments(t *testing.T) {
	config := tinyConfig(t, t.TempDir(), "")
	for args, want := range map[string]string{
		"components keys":                        "gyre components keys takes FILE.npz, got 0 arguments",
		"components rewards a b":                 "takes FILE|DIR|RUN, got 2 arguments",
		"components perplexity":                  "takes DIR|FILE ...",
		"components perplexity x --k 0":          "is 0, expected at least 1",
		"report":                                 "takes RUN ..., got 0 arguments",
		"plot signal":                            "takes COLUMN/ROW=DIR ...",
		"plot signal runs/tiny":                  `needs COLUMN/ROW=DIR, got "runs/tiny"`,
		"plot signal column=dir":                 `needs COLUMN/ROW=DIR, got "column=dir"`,
		"eval CONFIG --random --output x.jsonl":  "it plays without a policy, in one process, and keeps no episodes",
		"eval CONFIG --random --checkpoint x":    "it plays without a policy, in one process, and keeps no episodes",
		"analyze CONFIG --checkpoint x --step 0": "--step is 0, expected at least 1",
		"data show":                              "takes FILE, got 0 arguments",
		"data split one.jsonl --validation 3":    "takes FILE DIR, got 1 arguments",
		"data prepare":                           "takes math500|gsm8k|metamathqa, got 0 arguments",
		"data prepare gsm8k --split half":        "--split is math500's: gsm8k comes in two splits",
		"data prepare math500 --split half":      `--split: expected `,
		"data prepare math500 --split leak-free": "--split leak-free and --train FILE go together",
		"grade rows.jsonl":                       "takes no arguments",
		"generate --model x --stop=":             "--stop",
		"sweep ../../configs/studies/hyperparam_search.toml --stage 9 --dry-run": "--stage is 9, and the study has 4",
	} {
		code, stdout, stderr := runHere(t, strings.Fields(strings.ReplaceAll(args, "CONFIG",
			config+" analysis.num_buckets=2"))...)
		if code != exitcode.Usage || stdout != "" || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("gyre %s: exit code %d, printed %q, said %q; want %d and one line with %q", args, code, stdout,
				stderr, exitcode.Usage, want)
		}
	}
}
