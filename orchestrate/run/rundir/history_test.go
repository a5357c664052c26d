package rundir

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/orchestrate/run/metrics"
)

// A history is read whatever form it was exported in: rows of one step are joined, steps are in order, what is no metric is left out.
func TestHistoriesOfOtherPrograms(t *testing.T) {
	table := `{"_type":"table-file","path":"media/t.json","columns":["a"]}`
	for name, content := range map[string]string{
		"history.jsonl": `{"_step":2,"loss":"NaN","note":null}` + "\n\n" + `{"_step":1,"loss":0.5,"t":` + table + `}` + "\n" + `{"_step":2,"rate":3}`,
		"history.json":  `[{"Step":2,"loss":NaN},{"Step":1,"loss":0.5,"t":` + table + `},{"Step":2,"rate":3}]`,
		"history.csv":   "step,loss,t,rate\n2,NaN,,\n1,0.5,\"" + strings.ReplaceAll(table, `"`, `""`) + "\",\n2,,,3\n",
	} {
		dir := filepath.Join(t.TempDir(), "sokoban_abcd1234")
		write(t, filepath.Join(dir, name), content)
		write(t, filepath.Join(dir, "media", "t.json"), `{"columns":["a"],"data":[[1],[2]]}`)
		for _, path := range []string{dir, filepath.Join(dir, name)} {
			r, err := Read(path)
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			if r.Name != "sokoban" || r.ID() != "abcd1234" {
				t.Errorf("%s: the folder says that it is run %q %q", name, r.Name, r.ID())
			}
			if len(r.Records) != 2 || r.Records[0].Step != 1 || r.Records[1].Step != 2 {
				t.Fatalf("%s: %+v", name, r.Records)
			}
			first, _ := r.At(1)
			second, _ := r.At(2)
			if v, _ := first.Float("loss"); v != 0.5 {
				t.Errorf("%s: loss %v", name, first.Values["loss"])
			}
			if v, ok := second.Float("loss"); !ok || !math.IsNaN(v) {
				t.Errorf("%s: what was not a number is %v", name, second.Values["loss"])
			}
			if v, _ := second.Float("rate"); v != 3 {
				t.Errorf("%s: the rows of step 2 were not joined: %v", name, second.Values)
			}
			if rows, ok := first.Values["t"].(metrics.Table); !ok || len(rows.Rows) != 2 {
				t.Errorf("%s: the table beside it is %#v", name, first.Values["t"])
			}
			if _, has := second.Values["note"]; has {
				t.Errorf("%s: null became a metric", name)
			}
			if _, has := r.At(3); has {
				t.Error("there is no step 3")
			}
		}
	}
}

// Who exported a history may have noted whose it is; that goes before the folder's name.
func TestHistoryWithItsDescription(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sokoban_abcd1234")
	write(t, filepath.Join(dir, "history.jsonl"), `{"_step":1,"loss":1}`)
	write(t, filepath.Join(dir, "run.json"), `{"id":"zzzz","name":"real"}`)
	if r, err := Read(dir); err != nil || r.Name != "real" || r.ID() != "zzzz" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestHistoriesThatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"two of them":    {map[string]string{"a.csv": "_step\n1\n", "b.csv": "_step\n1\n"}, "name the file"},
		"no step":        {map[string]string{"history.json": `[{"_step":1},{"loss":1}]`}, "row 2 has no _step"},
		"not a list":     {map[string]string{"history.json": `{"_step":1}`}, "expected a list of objects"},
		"a list of else": {map[string]string{"history.json": `[1]`}, "expected a list of objects"},
		"a broken line":  {map[string]string{"history.jsonl": "{\"_step\":1}\n{\"_step\":"}, "history.jsonl:2: not a JSON object"},
		"ragged columns": {map[string]string{"history.csv": "_step,loss\n1,2,3\n"}, "wrong number of fields"},
		"an empty file":  {map[string]string{"history.csv": ""}, "history.csv"},
		"no rows":        {map[string]string{"history.csv": "_step\n"}, "no step was logged yet"},
		"another format": {map[string]string{"run-x.wandb": "PNG"}, "is not a run of wandb"},
	} {
		dir := t.TempDir()
		for file, content := range c.files {
			write(t, filepath.Join(dir, file), content)
		}
		if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, expected %q", name, err, c.want)
		}
	}
}

// What readers of a run may rely on when parts of it are damaged: the measurements are shown, and why no more of them.
func TestDamagedRuns(t *testing.T) {
	whole := `{"schema":1,"step":1,"a":1}` + "\n" + `{"schema":1,"step":2,"a":2}` + "\n"
	for name, c := range map[string]struct {
		metrics string
		records int
		broken  bool
		fails   string
	}{
		"whole":             {whole, 2, false, ""},
		"a torn last line":  {whole + `{"schema":1,"st`, 2, false, ""},
		"a hole in between": {`{"schema":1,"step":1,"a":1}` + "\n{\"a\n" + `{"schema":1,"step":2,"a":2}` + "\n", 1, true, ""},
		"broken at once":    {"{\"a\n" + whole, 0, true, "metrics.jsonl"},
		"nothing yet":       {"", 0, false, ErrEmpty.Error()},
	} {
		dir := filepath.Join(t.TempDir(), "r")
		write(t, filepath.Join(dir, metrics.File), c.metrics)
		write(t, filepath.Join(dir, "config.toml"), "not = [toml")
		write(t, filepath.Join(dir, "run.json"), "{")
		for _, path := range []string{dir, filepath.Join(dir, metrics.File)} {
			r, err := Read(path)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("%s: got %v, expected %q", name, err, c.fails)
				}
				continue
			}
			if err != nil || len(r.Records) != c.records || (r.Broken != nil) != c.broken {
				t.Errorf("%s: %+v, %v", name, r, err)
				continue
			}
			if r.Config != nil || r.Info != nil || r.ID() != "" || r.ValidationEpisodes() != nil {
				t.Errorf("%s: a description that cannot be read was believed: %+v %+v", name, r.Config, r.Info)
			}
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "gyre train") {
		t.Error(err)
	}
}

// The console shows what the log says, File writes to the log alone, and a log that fails ends nothing.
func TestLog(t *testing.T) {
	d, err := Open(filepath.Join(t.TempDir(), "run"), false)
	if err != nil {
		t.Fatal(err)
	}
	var console strings.Builder
	d.Log.Console = &console
	d.Log.Infof("step %d", 1)
	d.Log.File("only here")
	text, err := os.ReadFile(d.File("log.txt"))
	if err != nil || console.String() != "step 1\n" || strings.Count(string(text), "\n") != 2 || !strings.Contains(string(text), "only here") {
		t.Errorf("console %q, log %q, %v", console.String(), text, err)
	}
	d.Close()
	d.Log.Warnf("after %s", "the end")
	if got := console.String(); got != "step 1\nwarning: after the end\n" {
		t.Errorf("console %q", got)
	}
}

func TestValidationEpisodesPerTag(t *testing.T) {
	dir := writeRun(t, map[string]any{"a": 1.0})
	write(t, filepath.Join(dir, "config.toml"), `
[run]
name = "x"
[model]
path = "m"
[[envs]]
tag = "bandit"
[validation]
[[validation.envs]]
tag = "bandit"
groups = 3
group_size = 4
[[validation.envs]]
tag = "bandit"
groups = 2
group_size = 1
`)
	r, err := Read(dir)
	if err != nil || r.Config == nil {
		t.Fatal(r, err)
	}
	if got := fmt.Sprint(r.ValidationEpisodes()); got != "map[bandit:14]" {
		t.Error(got)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
