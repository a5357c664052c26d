// Package whatif runs the other history of a training: from one of its checkpoints on, with something left out or set
// otherwise, and says what that changed.
//
// The counterfactual run has the seeds, the schedule and the checkpoint of the run itself, so that the two are equal to
// the bit until the change reaches one of them. It is a run directory of its own, below what-if/ in the run's.
package whatif

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gyre/internal/nearest"
	"gyre/internal/statistics"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/run/rundir"
)

// Folder holds a run's counterfactual runs, in its directory.
const Folder = "what-if"

// Question is what is asked of a run.
type Question struct {
	From    int      // the checkpoint to begin at; 0 = before the first step
	Until   int      // the last step; 0 = the run's last
	Without []string // see config.ParseWithout; a group without a step is that of the first step after From
	With    []string // key=value
	Rewards []string // NAME=WEIGHT of reward components
	// LeaveOut asks for a history without each of so many groups of the first step, those with the largest standard
	// deviation of rewards first; 0 = one history with all of the above.
	LeaveOut int
	Name     string // of the history; "" = what is changed
	// OtherFiles says that the user's files may be others than the run had: their change is one of the history's.
	OtherFiles bool
}

// History is a counterfactual run.
type History struct {
	Run       *rundir.Run // the factual one
	From      string      // its checkpoint; "" = before the first step
	Step      int         // of the checkpoint
	Until     int
	Name      string
	Changes   []string // as people give them
	Overrides []string // of the run's configuration
}

// Dir is the directory of the counterfactual run.
func (h *History) Dir() string { return h.Run.File(Folder, h.Name) }

// Plan answers which histories are to be run. Everything that is wrong with the question is an error here, before
// anything is started.
func Plan(r *rundir.Run, q Question) ([]*History, error) {
	if r.Config == nil {
		return nil, fmt.Errorf("%s has no config.toml that can be read: expected the directory of a training", r.Dir)
	}
	h := History{Run: r, Step: q.From, Until: cmp.Or(q.Until, r.Records[len(r.Records)-1].Step)}
	var err error
	if h.From, err = checkpointAt(r, q.From); err != nil {
		return nil, err
	}
	if h.Until <= q.From {
		return nil, fmt.Errorf("the last step is %d, expected one after %d, where the other history begins", h.Until,
			q.From)
	}
	if err := h.apply(q); err != nil {
		return nil, err
	}
	if err := h.sameFiles(q.OtherFiles); err != nil {
		return nil, err
	}
	if q.LeaveOut > 0 {
		return h.leaveOut(q.LeaveOut)
	}
	h.Name = cmp.Or(q.Name, nameOf(h.Changes))
	return []*History{&h}, h.place()
}

// checkpointAt is the checkpoint after a step.
func checkpointAt(r *rundir.Run, step int) (string, error) {
	if step == 0 {
		return "", nil
	}
	var there []string
	for _, c := range r.Checkpoints() {
		if c.Step == step {
			return c.Path, nil
		}
		there = append(there, strconv.Itoa(c.Step))
	}
	return "", fmt.Errorf("%s has no complete checkpoint after step %d: expected one of %s, or 0 for its beginning "+
		"(run.save_every, checkpoint.keep say which are kept)", r.Dir, step, strings.Join(there, ", "))
}

// apply turns the question's changes into overrides.
func (h *History) apply(q Question) error {
	without := slices.Clone(h.Run.Config.Filter.Without)
	for _, text := range q.Without {
		w, err := config.ParseWithout(text)
		if err != nil {
			return fmt.Errorf("--without %w", err)
		}
		if w.Key == "group" && w.Step == 0 {
			w.Step = h.Step + 1
		}
		if w.Step > 0 && (w.Step <= h.Step || w.Step > h.Until) {
			return fmt.Errorf("--without %s: the other history has steps %d to %d", text, h.Step+1, h.Until)
		}
		if err := h.occurs(w); err != nil {
			return fmt.Errorf("--without %s: %w", text, err)
		}
		without = append(without, w.String())
		h.Changes = append(h.Changes, "without "+text)
	}
	if len(q.Without) > 0 {
		h.Overrides = append(h.Overrides, withoutOverride(without))
	}
	for _, text := range q.Rewards {
		name, weight, _ := strings.Cut(text, "=")
		if _, err := strconv.ParseFloat(weight, 64); err != nil {
			return fmt.Errorf("--replace-reward %s: expected NAME=WEIGHT", text)
		}
		i := slices.IndexFunc(h.Run.Config.Rewards, func(r config.Reward) bool { return r.Name == name })
		if i < 0 {
			var names []string
			for _, r := range h.Run.Config.Rewards {
				names = append(names, r.Name)
			}
			return fmt.Errorf("--replace-reward %s: the run has no reward component %q%s; its [[rewards]] are: %s", text,
				name, nearest.Hint(name, names), cmp.Or(strings.Join(names, ", "), "none"))
		}
		h.Overrides = append(h.Overrides, fmt.Sprintf("rewards.%d.weight=%s", i, weight))
		h.Changes = append(h.Changes, "reward "+text)
	}
	for _, text := range q.With {
		key, _, found := strings.Cut(text, "=")
		if !found || key == "run.name" || key == "run.output" {
			return fmt.Errorf("--with %s: expected KEY=VALUE of another key than the run's place", text)
		}
		h.Overrides, h.Changes = append(h.Overrides, text), append(h.Changes, "with "+text)
	}
	return nil
}

// occurs sees that the run has played what is left out, as far as its files tell.
func (h *History) occurs(w config.Without) error {
	var there []string
	for _, f := range h.Run.Rollouts() {
		if f.Kind != "step" || f.Step <= h.Step || f.Step > h.Until || w.Step > 0 && f.Step != w.Step {
			continue
		}
		played, err := episode.ReadFile(f.Path)
		if err != nil {
			return err
		}
		for _, e := range played {
			if w.Covers(f.Step, e.Group, e.Tag, e.Label) {
				return nil
			}
			there = append(there, map[string]string{"env": e.Tag, "row": e.Label, "group": strconv.Itoa(e.Group)}[w.Key])
		}
	}
	if there == nil { // no episodes were kept
		return nil
	}
	slices.Sort(there)
	there = slices.Compact(there)
	const shown = 8
	return fmt.Errorf("the run has played none%s; there are %s", nearest.Hint(w.Value, there),
		strings.Join(there[:min(shown, len(there))], ", "))
}

// sameFiles sees that scripts, data and templates are those that the run had.
func (h *History) sameFiles(allowed bool) error {
	c, err := config.Load(h.Run.File("config.toml"), h.Overrides)
	if err != nil {
		return err
	}
	var names []string
	for _, change := range h.Run.Info.FileChanges(c.Files(), h.Step) {
		names = append(names, strings.TrimPrefix(change.Key, rundir.FileKey))
	}
	switch list := strings.Join(names, ", "); {
	case list == "":
		return nil
	case !allowed:
		return fmt.Errorf("not as the run had them: %s. The histories would differ by them, too: put them back (%s has copies "+
			"of small ones), or say --other-files", list, h.Run.File(rundir.CodeFolder))
	default:
		h.Changes = append(h.Changes, "other files: "+list)
		return nil
	}
}

func withoutOverride(list []string) string {
	quoted := make([]string, len(list))
	for i, text := range list {
		quoted[i] = strconv.Quote(text)
	}
	return "filter.without=[" + strings.Join(quoted, ", ") + "]"
}

// leaveOut makes a history without each of the groups of the first step that differ most in their rewards.
func (h *History) leaveOut(most int) ([]*History, error) {
	path := h.Run.File("rollouts", fmt.Sprintf("step_%d.jsonl", h.Step+1))
	played, err := episode.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the groups of step %d: %w (run.save_rollouts keeps them)", h.Step+1, err)
	}
	scores := map[int][]float64{}
	for _, e := range played {
		scores[e.Group] = append(scores[e.Group], e.Score)
	}
	groups := slices.SortedFunc(maps.Keys(scores), func(a, b int) int {
		return cmp.Or(cmp.Compare(statistics.PopulationDeviation(scores[b]), statistics.PopulationDeviation(scores[a])), cmp.Compare(a, b))
	})
	var list []*History
	for _, g := range groups[:min(most, len(groups))] {
		one := *h
		text := fmt.Sprintf("group=%d@%d", g, h.Step+1)
		one.Overrides = append(slices.Clone(h.Overrides), withoutOverride(append(slices.Clone(h.Run.Config.Filter.Without),
			text)))
		one.Changes = append(slices.Clone(h.Changes), "without "+text)
		one.Name = nameOf(one.Changes)
		if err := one.place(); err != nil {
			return nil, err
		}
		list = append(list, &one)
	}
	return list, nil
}

var odd = regexp.MustCompile(`[^A-Za-z0-9._=@+-]+`)

// nameOf is a folder's name for changes.
func nameOf(changes []string) string {
	const longest = 80
	if len(changes) == 0 {
		return "unchanged"
	}
	name := odd.ReplaceAllString(strings.Join(changes, "+"), "-")
	if len(name) > longest {
		sum := sha256.Sum256([]byte(strings.Join(changes, "\n")))
		name = fmt.Sprintf("%s-%x", name[:longest], sum[:4])
	}
	return name
}

// place adds where the run lies to its overrides, and reads the configuration that they come to.
func (h *History) place() error {
	if h.Name != filepath.Base(h.Name) || h.Name == "." || h.Name == ".." {
		return fmt.Errorf("a history is called %q, expected the name of a folder", h.Name)
	}
	h.Overrides = append(h.Overrides, "run.output="+strconv.Quote(h.Run.File(Folder)), "run.name="+strconv.Quote(h.Name))
	_, err := config.Load(h.Run.File("config.toml"), h.Overrides)
	return err
}
