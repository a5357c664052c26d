package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

func TestPlotArguments(t *testing.T) {
	metrics := filepath.Join(t.TempDir(), "metrics.jsonl")
	line := `{"schema":1,"step":1,"grad_norm/bucket_1/task":0.5}` + "\n" + `{"schema":1,"step":2,"grad_norm/bucket_1/task":0.5}` + "\n"
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
		{"plot RUN --step 1 7 8", exitUsage, "", "step 7, 8 has no gradient analysis; analysed: 1, 2"},
		{"plot --step 7 8 RUN", exitUsage, "", "step 7, 8 has no gradient analysis; analysed: 1, 2"},
		{"plot RUN --step 9 --dpi 5", exitUsage, "", "--dpi is 5, expected 30 to 1200"},
		{"plot", exitUsage, "", "got 0"},
		{"plot RUN RUN", exitUsage, "", "got 2"},
		{"plot RUN.missing", exitFailed, "", "expected a run directory or a metrics.jsonl"},
		{"plot steps --mode ppo", exitUsage, "", "needs --step0-dir"},
		{"plot steps --mode dpo --step0-dir a --step20-dir b --step40-dir c", exitUsage, "", "expected grpo or ppo"},
	} {
		var out, errs bytes.Buffer
		app := newApp([]*cli.Command{plotCommand()}, &out, &errs)
		args := strings.Fields("gyre " + strings.ReplaceAll(c.args, "RUN", metrics))
		code := run(context.Background(), app, args)
		if code != c.code || out.String() != c.stdout || !strings.Contains(errs.String(), c.stderr) {
			t.Errorf("gyre %s: exit %d, stdout %q, stderr %q; want %d, %q, %q", c.args, code, out.String(), errs.String(), c.code, c.stdout, c.stderr)
		}
	}
}
