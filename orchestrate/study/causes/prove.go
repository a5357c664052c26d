package causes

import (
	"fmt"
	"strings"

	"gyre/internal/table"
	"gyre/orchestrate/run/rundir"
	"gyre/orchestrate/study/whatif"
)

// Prove is the command that runs the history without the cause, from the last checkpoint before it began that the run
// has. It is checked as gyre what-if itself would check it; "" where none is valid for the run.
func (s Suspect) Prove(run *rundir.Run) string {
	if s.Proof == nil || run.Config == nil {
		return ""
	}
	q := *s.Proof
	from := 0
	for _, c := range run.Checkpoints() {
		if c.Step <= q.From {
			from = c.Step
		}
	}
	q.From = from
	for _, q.OtherFiles = range []bool{false, true} {
		if _, err := whatif.Plan(run, q); err == nil {
			return command(run, q)
		}
	}
	return ""
}

func command(run *rundir.Run, q whatif.Question) string {
	words := []string{"gyre what-if", quoted(run.Dir), "--from", fmt.Sprint(q.From)}
	for _, change := range []struct {
		flag   string
		values []string
	}{{"--without", q.Without}, {"--replace-reward", q.Rewards}, {"--with", q.With}} {
		for _, v := range change.values {
			words = append(words, change.flag, quoted(v))
		}
	}
	if q.OtherFiles {
		words = append(words, "--other-files")
	}
	return strings.Join(words, " ")
}

// quoted is a word of a shell.
func quoted(word string) string {
	plain := "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-"
	if strings.Trim(word, plain) == "" && word != "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Table has a row per suspected cause, the likeliest first.
func Table(run *rundir.Run, list []Suspect) *table.Table {
	t := table.New("cause", "since", "confidence", "evidence", "look", "p", "proof")
	t.Columns[2].Format, t.Columns[4].Head = "%.2f", "episodes (step/episode)"
	t.Columns[5].Hidden, t.Columns[6].Hidden = true, true
	for _, s := range list {
		var look []string
		for _, p := range s.Look {
			look = append(look, fmt.Sprintf("%d/%d", p.Step, p.Episode))
		}
		t.Add(s.Cause, s.Since, s.Confidence, s.Evidence, strings.Join(look, " "), s.Adjusted, s.Prove(run))
	}
	return t
}

// Said tells people how many of the hypotheses hold.
func Said(found, tested int) string {
	if found == 0 {
		return fmt.Sprintf("None of %d hypotheses holds (%.0f %% false alarms in sound runs).", tested, 100*Alarm)
	}
	return fmt.Sprintf("Suspected causes: %d, by tests of %d hypotheses (%.0f %% false alarms in sound runs).",
		found, tested, 100*Alarm)
}
