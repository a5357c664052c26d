package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"gyre/internal/exitcode"
)

func TestPlotArguments(t *testing.T) {
	metrics := filepath.Join(t.TempDir(), "metrics.jsonl")
	line := `{"schema":1,"step":1,"grad_norm/bucket_1/task":0.5}` + "\n" +
		`{"schema":1,"step":2,"grad_norm/bucket_1/task":0.5}` + "\n"
	if err := os.WriteFile(metrics, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args           string
		code           int
		stdout, stderr string
	}{
		{"plot RUN --list-steps", 0, "1\n2\n", ""},
		{"plot --list-steps RUN", 0, "1\n2\n", ""},
		{"plot RUN --step 1 7 8", exitcode.Usage, "", "step 7, 8 has no gradient analysis; analysed: 1, 2"},
		{"plot --step 7 8 RUN", exitcode.Usage, "", "step 7, 8 has no gradient analysis; analysed: 1, 2"},
		{"plot RUN --step 9 --dpi 5", exitcode.Usage, "", "--dpi is 5, expected 30 to 1200"},
		{"plot", exitcode.Usage, "", "got 0"},
		{"plot RUN RUN", exitcode.Usage, "", "got 2"},
		{"plot RUN.missing", exitcode.Usage, "", "expected a run directory (`gyre train` makes one) or a metrics.jsonl"},
		{"plot steps --mode ppo", exitcode.Usage, "", "needs --step0-dir"},
		{"plot steps --mode dpo --step0-dir a --step20-dir b --step40-dir c", exitcode.Usage, "", "expected grpo or ppo"},
	} {
		var out, errs bytes.Buffer
		app := newApp([]*cli.Command{plotCommand()}, &out, &errs)
		args := strings.Fields("gyre " + strings.ReplaceAll(c.args, "RUN", metrics))
		code := run(context.Background(), app, args)
		if code != c.code || out.String() != c.stdout || !strings.Contains(errs.String(), c.stderr) {
			t.Errorf("gyre %s: exit %d, stdout %q, stderr %q; want %d, %q, %q", c.args, code, out.String(),
				errs.String(), c.code, c.stdout, c.stderr)
		}
	}
}

// The history of a run of W&B is drawn as RAGEN's script draws it.
func TestPlotHistories(t *testing.T) {
	dir := t.TempDir()
	row := func(step string, task string) string {
		return `{"_step": ` + step +
			`, "_timestamp": 1.5, "actor/pg_loss": NaN, "none": null, "grad_norm/bucket_1/task": ` + task +
			`, "grad_norm/bucket_1/reward_std_mean": 0.5, "grad_norm/bucket_1/group_rv_table": {"columns": ["bucket", "group_id", "reward_std"], ` +
			`"rows": [["bucket_1", 4, 0.25], ["bucket_1", 7, 0.75]]}}`
	}
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("taken/history.jsonl", row("1", "0.25")+"\n"+`{"_step": 2, "grad_norm/bucket_1/task": 0}`+"\n"+row("11",
		"0.5")+"\n")
	write("taken/run.json", `{"name": "my run", "id": "abcd1234"}`)
	t.Chdir(dir)
	for _, c := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{"taken", "--list-steps"}, 0, "1\n11\n", ""},
		{[]string{"taken", "--step", "1", "12"}, exitcode.Usage, "", "step 12 has no gradient analysis; analysed: 1, 11"},
		{[]string{"taken", "--step", "1"}, 0,
			"gradient_analysis_outputs/my_run_abcd1234/gradient_analysis_bucket_rv_table_step_1.csv\n", ""},
		{[]string{"taken/history.jsonl", "--output-dir", "drawn"}, 0, "drawn/gradient_analysis_plots_step_11.png\n",
			""},
		{[]string{"gradient_analysis_outputs"}, exitcode.Failed, "", "scripts/wandb_history.py makes a folder of a W&B run"},
	} {
		var out, errs bytes.Buffer
		args := append([]string{"gyre", "plot", "steps", "--dpi", "40"}, c.args...)
		code := run(context.Background(), newApp([]*cli.Command{plotCommand()}, &out, &errs), args)
		if code != c.code || !strings.Contains(out.String(), c.stdout) || !strings.Contains(errs.String(), c.stderr) {
			t.Errorf("%q: exit %d, stdout %q, stderr %q; want %d, %q, %q", c.args, code, out.String(), errs.String(),
				c.code, c.stdout, c.stderr)
		}
	}
	csv := readFile(t, "gradient_analysis_outputs/my_run_abcd1234/gradient_analysis_bucket_rv_table_step_1.csv")
	if want := "bucket,group_id,reward_std,profile\nbucket_1,4,0.25,\nbucket_1,7,0.75,\n"; string(csv) != want {
		t.Errorf("the table of spreads is %q, want %q", csv, want)
	}
}
