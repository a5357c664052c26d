package offline

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/gonum/stat"

	"gyre/internal/figure"
	"gyre/internal/statistics"
	"gyre/internal/table"
	"gyre/orchestrate/loop/tracking"
)

// Reply is a validation reply with the log-probs of its tokens.
type Reply = tracking.Reply

// ReadReplies reads files of validation replies; of a folder, its validation_step_*.json.
func ReadReplies(paths []string) ([]Reply, error) {
	var all []Reply
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
				return nil, fmt.Errorf("%s: expected a list of replies: %w", file, err)
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

// AUROC is the probability that a right reply scores higher than a wrong one (a tie counts half); NaN when there are
// only right or only wrong ones.
func AUROC(scores []float64, right []bool) float64 {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(scores[a], scores[b]) })
	ranks, positives := 0.0, 0
	for from := 0; from < len(order); {
		to := from
		for to < len(order) && scores[order[to]] == scores[order[from]] {
			to++
		}
		for _, i := range order[from:to] {
			if right[i] {
				ranks += float64(from+to+1) / 2
				positives++
			}
		}
		from = to
	}
	negatives := len(scores) - positives
	if positives == 0 || negatives == 0 {
		return math.NaN()
	}
	return (ranks - float64(positives*(positives+1))/2) / float64(positives*negatives)
}

// Estimate is a mean over prompts with a bootstrap interval.
type Estimate struct {
	Mean, Low, High float64 // NaN when no prompt has both right and wrong replies
	Prompts         int
}

const (
	resamples  = 500
	confidence = 0.95
)

// promptAUROC is the mean AUROC of a score over the prompts that have both right and wrong replies. The interval is
// over prompts.
func promptAUROC(replies []Reply, score func(Reply) float64) Estimate {
	type prompt struct {
		scores []float64
		right  []bool
	}
	byPrompt := map[string]*prompt{}
	var order []string
	for _, r := range replies {
		s := score(r)
		if math.IsNaN(s) {
			continue
		}
		p := byPrompt[r.Prompt]
		if p == nil {
			p = &prompt{}
			byPrompt[r.Prompt], order = p, append(order, r.Prompt)
		}
		p.scores, p.right = append(p.scores, s), append(p.right, r.Reward == 1)
	}
	var values []float64
	for _, name := range order {
		if a := AUROC(byPrompt[name].scores, byPrompt[name].right); !math.IsNaN(a) {
			values = append(values, a)
		}
	}
	e := Estimate{math.NaN(), math.NaN(), math.NaN(), len(values)}
	if len(values) == 0 {
		return e
	}
	e.Mean = statistics.Mean(values)
	rng := rand.New(rand.NewPCG(0, 0))
	means := make([]float64, resamples)
	for i := range means {
		for range values {
			means[i] += values[rng.IntN(len(values))] / float64(len(values))
		}
	}
	e.Low, e.High = statistics.Quantile((1-confidence)/2, means), statistics.Quantile((1+confidence)/2, means)
	return e
}

// Prefix is what the first K tokens of the replies of a step tell.
type Prefix struct {
	Step, K     int
	Replies     int
	NLL, PPL    float64 // means over replies
	AUROC       Estimate
	Length      Estimate // AUROC of the number of tokens
	Correlation float64  // of score and reward, over all replies; NaN for fewer than ten
}

// Prefixes measures every step for every k.
func Prefixes(replies []Reply, ks []int) []Prefix {
	var list []Prefix
	for _, of := range bySteps(replies) {
		length := promptAUROC(of, func(r Reply) float64 { return float64(len(r.TokenLogProbs)) })
		for _, k := range ks {
			p := Prefix{Step: of[0].Step, K: k, Length: length, Correlation: math.NaN(), NLL: math.NaN(),
				PPL: math.NaN()}
			var scores, rewards, perplexities []float64
			for _, r := range of {
				if s := r.Score(k); !math.IsNaN(s) {
					scores, rewards, perplexities = append(scores, s), append(rewards, r.Reward),
						append(perplexities, math.Exp(-s))
				}
			}
			if p.Replies = len(scores); p.Replies > 0 {
				p.NLL, p.PPL = -statistics.Mean(scores), statistics.Mean(perplexities)
			}
			if p.Replies >= 10 {
				p.Correlation = stat.Correlation(scores, rewards, nil)
			}
			p.AUROC = promptAUROC(of, func(r Reply) float64 { return r.Score(k) })
			list = append(list, p)
		}
	}
	return list
}

func bySteps(replies []Reply) [][]Reply {
	var steps [][]Reply
	for i, r := range replies {
		if i == 0 || r.Step != replies[i-1].Step {
			steps = append(steps, nil)
		}
		steps[len(steps)-1] = append(steps[len(steps)-1], r)
	}
	return steps
}

// PrefixTable is the measurements for reading and for CSV.
func PrefixTable(list []Prefix) *table.Table {
	t := table.New("step", "k", "replies", "nll", "ppl", "auroc", "auroc_low", "auroc_high", "prompts",
		"auroc_of_length", "correlation")
	for _, p := range list {
		t.Add(p.Step, p.K, p.Replies, p.NLL, p.PPL, p.AUROC.Mean, p.AUROC.Low, p.AUROC.High, p.AUROC.Prompts,
			p.Length.Mean, p.Correlation)
	}
	return t
}

// Pruned is what is left when the replies with the worst first k tokens are stopped there. All but Share are in
// percent.
type Pruned struct{ Share, Accuracy, Recall, Saved float64 }

// Prune simulates the stopping of replies of the last step, for shares from 0 to 90 %.
func Prune(replies []Reply, k int) []Pruned {
	steps := bySteps(replies)
	of := slices.DeleteFunc(slices.Clone(steps[len(steps)-1]), func(r Reply) bool { return math.IsNaN(r.Score(k)) })
	slices.SortStableFunc(of, func(a, b Reply) int { return cmp.Compare(a.Score(k), b.Score(k)) })
	tokens, right := 0.0, 0.0
	for _, r := range of {
		tokens += float64(len(r.TokenLogProbs))
		if r.Reward == 1 {
			right++
		}
	}
	const points = 50
	var list []Pruned
	for i := range points {
		share := 0.9 * float64(i) / (points - 1)
		n := int(float64(len(of)) * share)
		if n >= len(of) {
			break
		}
		p := Pruned{Share: share, Recall: math.NaN()}
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
		p.Accuracy = 100 * sum / float64(len(of)-n)
		if right > 0 {
			p.Recall = 100 * kept / right
		}
		if tokens > 0 {
			p.Saved = 100 * saved / tokens
		}
		list = append(list, p)
	}
	return list
}

// PrefixFigure draws what prefixes tell: at the last step by k, over the steps, the loss of right and wrong replies,
// and what stopping the worst of them would save.
func PrefixFigure(name string, replies []Reply, list []Prefix, fixed int) figure.Figure {
	last := list[len(list)-1].Step
	steps, tokens := figure.Axis{Label: "training step", Integer: true},
		figure.Axis{Label: "first k tokens", Integer: true}
	auroc := figure.Axis{Label: "mean over prompts", Low: 0, High: 1}
	score, length := figure.Mark{Label: "mean log-prob", Color: figure.Color(0)},
		figure.Mark{Label: "number of tokens", Color: figure.Color(1)}
	correlation := figure.Mark{Label: "Pearson", Color: figure.Color(0)}
	overSteps := figure.Panel{Title: "AUROC over training", X: steps, Y: auroc}
	at := map[int]int{} // the mark of a k
	for _, p := range list {
		if p.Step == last {
			extend(&score, p.K, p.AUROC)
			extend(&length, p.K, p.Length)
			correlation.Add(float64(p.K), p.Correlation)
		}
		if _, known := at[p.K]; !known {
			at[p.K] = len(overSteps.Marks)
			overSteps.Add(figure.Mark{Label: fmt.Sprintf("k = %d", p.K), Color: figure.Color(at[p.K])})
		}
		extend(&overSteps.Marks[at[p.K]], p.Step, p.AUROC)
	}
	right, wrong := figure.Mark{Label: "right replies", Color: figure.Color(0)},
		figure.Mark{Label: "wrong replies", Color: figure.Color(1)}
	for _, of := range bySteps(replies) {
		right.Add(float64(of[0].Step), meanLoss(of, fixed, true))
		wrong.Add(float64(of[0].Step), meanLoss(of, fixed, false))
	}
	accuracy, recall := figure.Mark{Label: "right among the rest", Color: figure.Color(0)},
		figure.Mark{Label: "right ones kept", Color: figure.Color(1)}
	saved := figure.Mark{Label: "tokens saved", Color: figure.Color(2)}
	for _, p := range Prune(replies, fixed) {
		accuracy.Add(100*p.Share, p.Accuracy)
		recall.Add(100*p.Share, p.Recall)
		saved.Add(100*p.Share, p.Saved)
	}
	return figure.Figure{Name: name, Title: "What the log-probs of validation replies tell",
		Caption: "bands: 95 % bootstrap interval over prompts", Columns: 3,
		Width: 3.4, Height: 2.3, Panels: []figure.Panel{
			{Title: fmt.Sprintf("AUROC at step %d", last), X: tokens, Y: auroc, Marks: []figure.Mark{score, length}},
			overSteps,
			{Title: fmt.Sprintf("Correlation at step %d", last), X: tokens,
				Y: figure.Axis{Label: "of score and reward", Low: -1, High: 1}, Marks: []figure.Mark{correlation}},
			{Title: fmt.Sprintf("Loss of the first %d tokens", fixed), X: steps,
				Y: figure.Axis{Label: "nats per token"}, Marks: []figure.Mark{right, wrong}},
			{Title: fmt.Sprintf("Stopping the worst after %d tokens", fixed),
				X: figure.Axis{Label: "replies stopped (%)"}, Y: figure.Axis{Label: "%", Low: 0, High: 100},
				Marks: []figure.Mark{accuracy, recall, saved}},
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
	if values == nil {
		return math.NaN()
	}
	return statistics.Mean(values)
}

func extend(m *figure.Mark, x int, e Estimate) { m.AddInterval(float64(x), e.Mean, e.Low, e.High) }
