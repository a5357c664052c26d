package evaluation

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gyre/internal/table"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/run/rundir"
	listing "gyre/orchestrate/study/runs"
)

// OfRuns compares the last validations of runs with the first run's, as Differences does, and says in a sentence what
// was compared, or why nothing could be. One run is not compared.
func OfRuns(runs []*rundir.Run) (t *table.Table, note string, err error) {
	if len(runs) < 2 {
		return nil, "", nil
	}
	var list []Result
	var steps []string
	names := listing.Names(runs)
	for i, r := range runs {
		var last rundir.Stored
		for _, f := range r.Rollouts() {
			if f.Kind == "validation" {
				last = f
			}
		}
		if last.Path == "" {
			return nil, fmt.Sprintf("%s has no episodes of a validation (run.save_rollouts), so that tasks cannot be compared "+
				"one by one: `gyre eval A B` plays them.", names[i]), nil
		}
		one := Result{Name: names[i]}
		if one.Episodes, err = episode.ReadFile(last.Path); err != nil {
			return nil, "", err
		}
		for _, e := range one.Episodes {
			e.Metrics = map[string]float64{}
			if e.Success {
				e.Metrics["success"] = 1
			}
		}
		list, steps = append(list, one), append(steps, fmt.Sprintf("%s at step %d", names[i], last.Step))
	}
	note = fmt.Sprintf("Last validations against %s, task by task (95 %% intervals; p: sign test of up and down): %s.",
		list[0].Name, strings.Join(steps, ", "))
	for i, r := range runs[1:] {
		said, unpaired := apart(runs[0], r)
		for _, one := range said {
			note += fmt.Sprintf(" %s %s.", names[i+1], one)
		}
		list[i+1].Episodes = slices.DeleteFunc(list[i+1].Episodes, func(e *episode.Episode) bool {
			return slices.Contains(unpaired, e.Tag)
		})
	}
	return Differences(list), note, nil
}

// apart says in what the last validation of a run is not that of another, and names the tags whose tasks are not those
// of the other under the same names: a file of theirs has another content.
func apart(from, r *rundir.Run) (said, unpaired []string) {
	if from.Config != nil && r.Config != nil {
		if differ := sampling(from.Config, r.Config); differ != "" {
			said = append(said, "sampled or judged otherwise: "+differ)
		}
	}
	if from.Info == nil || r.Info == nil || from.Info.Files == nil || r.Info.Files == nil {
		return said, nil
	}
	if changed := changedFiles(from.Info.Files, r.Info.Files); len(changed) > 0 {
		said = append(said, fmt.Sprintf("ran with another content of %s (gyre runs diff)", strings.Join(changed, ", ")))
	}
	before, after := tasksOf(from), tasksOf(r)
	for _, tag := range slices.Sorted(maps.Keys(before)) {
		if own, both := after[tag]; both && !slices.Equal(before[tag], own) {
			unpaired = append(unpaired, tag)
			said = append(said, fmt.Sprintf("has tasks of %s from other files, which are not paired: gyre eval plays both "+
				"on one set", tag))
		}
	}
	return said, unpaired
}

// changedFiles are the names under which two runs had different contents.
func changedFiles(before, after map[string]string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if now := after[name]; now != "" && now != before[name] {
			names = append(names, name)
		}
	}
	return names
}

// tasksOf are the contents of the files that the validation environments of a run name, by tag.
func tasksOf(r *rundir.Run) map[string][]string {
	contents := map[string][]string{}
	if r.Config == nil {
		return nil
	}
	for _, e := range r.Config.Validation.Envs {
		contents[e.Tag] = slices.Sorted(maps.Values(e.Named(r.Info.Files)))
	}
	return contents
}

// SampledOtherwise says in what an evaluation samples or judges otherwise than the validations of the run did that a
// checkpoint belongs to; "" where it does not, or there is no run.
func SampledOtherwise(c *config.Config, checkpoint string) string {
	dir := filepath.Clean(checkpoint)
	for range 4 { // RUN/global_step_N/actor, RUN/best/actor
		if _, err := os.Stat(filepath.Join(dir, "run.json")); err == nil {
			run, err := config.Load(filepath.Join(dir, "config.toml"), nil)
			if err != nil {
				return ""
			}
			differ := sampling(run, c)
			if info, _ := rundir.ReadInfo(dir); info != nil {
				for _, name := range changedFiles(info.Files, filesOf(c)) {
					differ = strings.TrimPrefix(differ+"; the content of "+name, "; ")
				}
			}
			if differ != "" {
				return fmt.Sprintf("this samples or judges otherwise than the validations of %s, so that their numbers are "+
					"not comparable: %s", dir, differ)
			}
			return ""
		}
		dir = filepath.Dir(dir)
	}
	return ""
}

// sampling lists the settings in which validations under two configurations differ.
func sampling(before, after *config.Config) string {
	var texts [2][]byte
	for i, c := range []*config.Config{before, after} {
		var err error
		if texts[i], err = config.Resolved(c); err != nil {
			return ""
		}
	}
	changes, err := config.Compare(texts[0], texts[1])
	if err != nil {
		return ""
	}
	var list []string
	for _, change := range changes {
		table, key, _ := strings.Cut(change.Key, ".")
		ofTasks := table == "validation" && key != "tracking" && !strings.HasSuffix(key, ".groups")
		ofReplies := table == "rollout" && strings.Contains(" max_tokens max_length think prompt context window memory "+
			"action_separator format_penalty overlong_tokens overlong_penalty ", " "+key+" ")
		whole := change.From == "" || change.To == "" // a reward that is new or gone is named by its name alone
		ofRewards := table == "rewards" && (!whole || strings.HasSuffix(key, ".name"))
		if ofTasks || ofReplies || ofRewards {
			list = append(list, change.String())
		}
	}
	return strings.Join(list, "; ")
}
