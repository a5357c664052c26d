package runs

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"gyre/internal/table"
	"gyre/orchestrate/config"
	"gyre/orchestrate/run/rundir"
)

// Configurations lists the keys in which the configurations of runs differ, name and output folder aside. Of a run only
// its folder and run.json are read; one without a readable configuration has empty cells.
func Configurations(list []*rundir.Run, labels []string) *table.Table {
	flat := make([]map[string]string, len(list))
	for i, r := range list {
		text, _ := os.ReadFile(r.File("config.toml"))
		if flat[i], _ = config.Flatten(text); flat[i] == nil {
			flat[i] = map[string]string{}
		}
		for _, c := range r.Changes() {
			if !strings.HasPrefix(c.Key, rundir.FileKey) {
				flat[i][c.Key] = untilStep(flat[i][c.Key], c)
			}
		}
		delete(flat[i], "run.name")
		delete(flat[i], "run.output")
	}
	return differing(flat, labels)
}

// untilStep adds to a value the one that a resumption changed: the last alone would say that it always held.
func untilStep(now string, c config.Change) string {
	return strings.TrimPrefix(fmt.Sprintf("%s; to step %d %s", now, c.Step, c.From), "; ")
}

// differing has a row per key that does not have one value in all.
func differing(flat []map[string]string, labels []string) *table.Table {
	keys := map[string]bool{}
	for _, values := range flat {
		for key := range values {
			keys[key] = true
		}
	}
	t := table.New(append([]string{"key"}, labels...)...)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		row, differs := []any{key}, false
		for i := range flat {
			row = append(row, flat[i][key])
			differs = differs || flat[i][key] != flat[0][key]
		}
		if differs {
			t.Add(row...)
		}
	}
	return t
}

// ofTheRun are the fields of run.json that say how a run went, and not what it was made with.
var ofTheRun = []string{"id", "name", "status", "reason", "first_step", "step", "updated", "config_sha256",
	"peak_rss_bytes", "changes", "files_sha256"}

// Builds lists in what programs, machines and seeds of runs differ, as run.json has them.
func Builds(list []*rundir.Run, labels []string) *table.Table {
	flat := make([]map[string]string, len(list))
	for i, r := range list {
		flat[i] = map[string]string{}
		if r.Info == nil {
			continue
		}
		encoded, _ := json.Marshal(r.Info) // texts, numbers and maps of them always encode
		var fields map[string]any
		_ = json.Unmarshal(encoded, &fields)
		for name, v := range fields {
			if !slices.Contains(ofTheRun, name) {
				flat[i][name] = fmt.Sprint(v)
			}
		}
	}
	return differing(flat, labels)
}

// ends are the metrics that runs are compared by.
var ends = []string{"val-env/*/success", "train/*/success", "val-env/charts/avg_episode_return", "critic/score/mean",
	"rollout/in_group_reward_std", "rollout/filter_kept_ratio", "actor/entropy", "actor/kl_loss", "actor/ppo_kl",
	"actor/grad_norm", "response_length", "val/loss", "perf/time_per_step", "perf/gen_tokens_per_s"}

// Ends has the last value of metrics in each run with the step where it has it, and of two runs their difference. all
// adds every other metric that both ends of a run's file have.
func Ends(list []*rundir.Run, labels []string, all bool) (*table.Table, error) {
	keys := slices.Clone(ends)
	series := make([]*Series, len(list))
	for i, r := range list {
		series[i] = OpenSeries(r.Dir)
		if _, _, err := series[i].Read("step"); err != nil {
			return nil, err
		}
		for _, name := range series[i].Names() {
			compared := slices.ContainsFunc(keys, func(key string) bool { ok, _ := path.Match(key, name); return ok })
			if all && !compared {
				keys = append(keys, name)
			}
		}
	}
	t := table.New(append([]string{"metric"}, labels...)...)
	if len(list) == 2 {
		t.Columns = append(t.Columns, table.Column{Name: "difference", Format: "%+.4g"})
	}
	for _, key := range keys {
		row, found, known := []any{key}, []float64{}, false
		for _, s := range series {
			steps, columns, err := s.Read(key)
			if err != nil {
				return nil, err
			}
			last, cell := math.NaN(), table.Cell{}
			for i, v := range columns[key] {
				if !math.IsNaN(v) {
					last, cell = v, table.Cell{Value: v, Text: fmt.Sprintf("%.4g (step %d)", v, steps[i])}
					known = true
				}
			}
			row, found = append(row, cell), append(found, last)
		}
		if len(list) == 2 {
			row = append(row, found[1]-found[0])
		}
		if known {
			t.Add(row...)
		}
	}
	return t, nil
}

// Labels are Names of folders.
func Labels(dirs []string) []string {
	list := make([]*rundir.Run, len(dirs))
	for i, dir := range dirs {
		list[i] = &rundir.Run{Name: filepath.Base(dir), Dir: dir}
	}
	return Names(list)
}

// Names are those of runs, and where two have the same, with as many of the folders around them as tell them apart.
func Names(list []*rundir.Run) []string {
	names := make([]string, len(list))
	for i, r := range list {
		names[i] = r.Name
	}
	for longer := true; longer; {
		longer = false
		seen := map[string]int{}
		for _, name := range names {
			seen[name]++
		}
		for i, name := range names {
			if dir := filepath.Clean(list[i].Dir); seen[name] > 1 && name != dir {
				parts := strings.Split(dir, "/")
				names[i] = strings.Join(parts[max(0, len(parts)-strings.Count(name, "/")-2):], "/")
				longer = true
			}
		}
	}
	return names
}
