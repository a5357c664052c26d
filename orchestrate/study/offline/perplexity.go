package offline

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/gonum/stat"

	"gyre/internal/figure"
	"gyre/internal/quote"
	"gyre/internal/statistics"
	"gyre/internal/table"
	"gyre/orchestrate/loop/tracking"
)

// Reply is a validation reply with the log-probs of its tokens.
type Reply = tracking.Reply

// Perplexity says what the first k tokens of validation replies tell about their rewards, for several k, and what it
// would save to stop the worst replies after a fixed number of tokens.
func Perplexity(paths []string, ks []int, fixed int) (Result, error) {
	replies, err := readReplies(paths)
	if err != nil {
		return Result{}, err
	}
	t := prefixes(replies, ks)
	return Result{Table: t, Figure: prefixFigure(replies, t, ks, fixed)}, nil
}

// readReplies reads files of validation replies; of a folder, its validation_step_*.json. They are ordered by step.
func readReplies(paths []string) (all []Reply, err error) {
	for _, path := range paths {
		files := []string{path}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			files, _ = filepath.Glob(filepath.Join(path, "validation_step_*.json"))
			if len(files) == 0 {
				return nil, fmt.Errorf("%s has no validation_step_N.json; validation.tracking writes them", path)
			}
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			var list []Reply
			if err := json.Unmarshal(text, &list); err != nil {
				return nil, fmt.Errorf("%s: expected a list of replies: %w", file, quote.JSON(err))
			}
			all = append(all, list...)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("there are no replies")
	}
	slices.SortStableFunc(all, func(a, b Reply) int { return cmp.Compare(a.Step, b.Step) })
	return all, nil
}

// bySteps cuts ordered replies into those of each step.
func bySteps(replies []Reply) (steps [][]Reply) {
	for i, r := range replies {
		if i == 0 || r.Step != replies[i-1].Step {
			steps = append(steps, nil)
		}
		steps[len(steps)-1] = append(steps[len(steps)-1], r)
	}
	return steps
}

// promptAUROC is the mean area under the ROC curve of a score over the prompts that have both right and wrong replies,
// with a 95 % bootstrap interval over these prompts and their number.
func promptAUROC(replies []Reply, score func(Reply) float64) (mean table.Cell, prompts int) {
	type scores struct{ right, wrong []float64 }
	byPrompt := map[string]*scores{}
	var order []*scores
	for _, r := range replies {
		v := score(r)
		if math.IsNaN(v) {
			continue
		}
		p := byPrompt[r.Prompt]
		if p == nil {
			p = &scores{}
			byPrompt[r.Prompt], order = p, append(order, p)
		}
		if r.Reward == 1 {
			p.right = append(p.right, v)
		} else {
			p.wrong = append(p.wrong, v)
		}
	}
	var values []float64
	for _, p := range order {
		if v := statistics.Superiority(p.right, p.wrong); !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	of := func(samples ...[][]float64) float64 { return statistics.Mean(samples[0][0]) }
	return table.Between(statistics.Bootstrap(0.95, of, [][]float64{values})), len(values)
}

// prefixes measures every step for every k: the means over replies of loss and perplexity, the AUROC of the mean
// log-prob and of the number of tokens, and the correlation of mean log-prob and reward over all replies, NaN for fewer
// than ten.
func prefixes(replies []Reply, ks []int) *table.Table {
	t := table.New("step", "k", "replies", "nll", "ppl", "auroc", "prompts", "auroc_of_length", "correlation")
	t.Columns[5].Low, t.Columns[5].High = "auroc_low", "auroc_high"
	for _, of := range bySteps(replies) {
		length, _ := promptAUROC(of, func(r Reply) float64 { return float64(len(r.TokenLogProbs)) })
		for _, k := range ks {
			var scores, rewards, perplexities []float64
			for _, r := range of {
				if s := r.Score(k); !math.IsNaN(s) {
					scores, rewards = append(scores, s), append(rewards, r.Reward)
					perplexities = append(perplexities, math.Exp(-s))
				}
			}
			correlation := math.NaN()
			if len(scores) >= 10 {
				correlation = stat.Correlation(scores, rewards, nil)
			}
			area, prompts := promptAUROC(of, func(r Reply) float64 { return r.Score(k) })
			t.Add(of[0].Step, k, len(scores), -statistics.Mean(scores), statistics.Mean(perplexities), area, prompts,
				length, correlation)
		}
	}
	return t
}

// prune simulates that the replies with the worst first k tokens are stopped there, for shares of them from 0 to 90 %:
// how many of the rest are right, how many of the right ones are kept and how many tokens are saved. All is in percent.
func prune(of []Reply, k int) *table.Table {
	t := table.New("stopped", "accuracy", "recall", "saved")
	of = slices.DeleteFunc(slices.Clone(of), func(r Reply) bool { return math.IsNaN(r.Score(k)) })
	slices.SortStableFunc(of, func(a, b Reply) int { return cmp.Compare(a.Score(k), b.Score(k)) })
	tokens, right := 0.0, 0.0
	for _, r := range of {
		tokens += float64(len(r.TokenLogProbs))
		if r.Reward == 1 {
			right++
		}
	}
	const points = 50
	for i := range points {
		share := 0.9 * float64(i) / (points - 1)
		n := int(float64(len(of)) * share)
		if n >= len(of) {
			break
		}
		saved, kept, sum := 0.0, 0.0, 0.0
		for _, r := range of[:n] {
			saved += float64(max(0, len(r.TokenLogProbs)-k))
		}
		for _, r := range of[n:] {
			sum += r.Reward
			if r.Reward == 1 {
				kept++
			}
		}
		t.Add(100*share, 100*sum/float64(len(of)-n), 100*kept/right, 100*saved/tokens)
	}
	return t
}

// prefixFigure draws what prefixes tell: at the last step by k, over the steps, the loss of right and wrong replies,
// and what stopping the worst of them would save.
func prefixFigure(replies []Reply, t *table.Table, ks []int, fixed int) figure.Figure {
	tokens := figure.Axis{Label: "first k tokens", Integer: true}
	area := figure.Axis{Label: "mean over prompts", Low: 0, High: 1}
	overSteps := figure.Panel{Title: "AUROC over training", X: steps, Y: area}
	for i, k := range ks {
		overSteps.Add(figure.Curve(t.Where("k", k), "step", "auroc", fmt.Sprintf("k = %d", k), figure.Color(i)))
	}
	losses := table.New("step", "right", "wrong")
	groups := bySteps(replies)
	for _, of := range groups {
		losses.Add(of[0].Step, meanLoss(of, fixed, true), meanLoss(of, fixed, false))
	}
	lastReplies := groups[len(groups)-1]
	last, pruned := t.Where("step", lastReplies[0].Step), prune(lastReplies, fixed)
	return figure.Figure{Name: "perplexity.png", Title: "What the log-probs of validation replies tell",
		Caption: "bands: 95 % bootstrap interval over prompts", Columns: 3, Width: 3.4, Height: 2.3,
		Panels: []figure.Panel{
			{Title: fmt.Sprintf("AUROC at step %d", lastReplies[0].Step), X: tokens, Y: area, Marks: []figure.Mark{
				figure.Curve(last, "k", "auroc", "mean log-prob", figure.Color(0)),
				figure.Curve(last, "k", "auroc_of_length", "number of tokens", figure.Color(1))}},
			overSteps,
			{Title: fmt.Sprintf("Correlation at step %d", lastReplies[0].Step), X: tokens,
				Y:     figure.Axis{Label: "of score and reward", Low: -1, High: 1},
				Marks: []figure.Mark{figure.Curve(last, "k", "correlation", "Pearson", figure.Color(0))}},
			{Title: fmt.Sprintf("Loss of the first %d tokens", fixed), X: steps,
				Y: figure.Axis{Label: "nats per token"}, Marks: []figure.Mark{
					figure.Curve(losses, "step", "right", "right replies", figure.Color(0)),
					figure.Curve(losses, "step", "wrong", "wrong replies", figure.Color(1))}},
			{Title: fmt.Sprintf("Stopping the worst after %d tokens", fixed),
				X: figure.Axis{Label: "replies stopped (%)"}, Y: figure.Axis{Label: "%", Low: 0, High: 100},
				Marks: []figure.Mark{
					figure.Curve(pruned, "stopped", "accuracy", "right among the rest", figure.Color(0)),
					figure.Curve(pruned, "stopped", "recall", "right ones kept", figure.Color(1)),
					figure.Curve(pruned, "stopped", "saved", "tokens saved", figure.Color(2))}},
		}}
}

// meanLoss is the mean loss of the first k tokens of right or of wrong replies; NaN without any.
func meanLoss(replies []Reply, k int, right bool) float64 {
	var values []float64
	for _, r := range replies {
		if s := r.Score(k); !math.IsNaN(s) && (r.Reward == 1) == right {
			values = append(values, -s)
		}
	}
	return statistics.Mean(values)
}
