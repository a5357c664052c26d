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
		for _, c := range r.Changes() { // the last value alone would say that it always held
			flat[i][c.Key] = strings.TrimPrefix(fmt.Sprintf("%s; to step %d %s", flat[i][c.Key], c.Step, c.From), "; ")
		}
		delete(flat[i], "run.name")
		delete(flat[i], "run.output")
	}
	return differing(flat, labels)
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
	"peak_rss_bytes", "changes"}

// Builds lists in what programs, machines, seeds and files of runs differ, as run.json has them.
func Builds(list []*rundir.Run, labels []string) (*table.Table, error) {
	flat := make([]map[string]string, len(list))
	for i, r := range list {
		flat[i] = map[string]string{}
		if r.Info == nil {
			continue
		}
		encoded, err := json.Marshal(r.Info)
		if err != nil {
			return nil, err
		}
		var fields map[string]any
		if err := json.Unmarshal(encoded, &fields); err != nil {
			return nil, err
		}
		for name, v := range fields {
			if !slices.Contains(ofTheRun, name) {
				flat[i][name] = fmt.Sprint(v)
			}
		}
	}
	return differing(flat, labels), nil
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

// Labels are the names of folders, and where two have the same, their paths.
func Labels(dirs []string) []string {
	labels, seen := make([]string, len(dirs)), map[string]int{}
	for _, dir := range dirs {
		seen[filepath.Base(dir)]++
	}
	for i, dir := range dirs {
		if labels[i] = filepath.Base(dir); seen[labels[i]] > 1 {
			labels[i] = dir
		}
	}
	return labels
}
