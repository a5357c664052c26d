package tinker

import (
	"context"
	"maps"
	"slices"

	"gyre/internal/statistics"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/serve"
	"gyre/torch"
)

// loss is one of Tinker's losses as a loss of csrc/train/losses. Its value is a sum over tokens.
type loss struct {
	task   string
	inputs []string           // of the data, beside target_tokens; one that is absent is a column of the second
	absent map[string]float64 // what stands for absent inputs; others must be there
	keys   map[string]float64 // of the configuration, with their defaults
	with   func(key map[string]float64) map[string]float64
}

// clips are the constants of a loss that clips the ratio to an interval, which here is given as distances from 1.
func clips(key map[string]float64) map[string]float64 {
	return map[string]float64{"clip_low": 1 - key["clip_low_threshold"], "clip_high": key["clip_high_threshold"] - 1,
		"clip_dual": 0}
}

var compared = []string{"logprobs", "advantages"}

var losses = map[string]loss{
	"cross_entropy":       {task: "nll", inputs: []string{"weights"}, absent: map[string]float64{"weights": 1}},
	"importance_sampling": {task: "importance_sampling", inputs: compared},
	"ppo": {task: "ppo", inputs: compared, with: clips,
		keys: map[string]float64{"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}},
	"cispo": {task: "cispo", inputs: compared, with: clips,
		keys: map[string]float64{"clip_low_threshold": 0, "clip_high_threshold": 4}},
	"dro": {task: "dro", inputs: compared, keys: map[string]float64{"beta": 0.05},
		with: func(key map[string]float64) map[string]float64 { return map[string]float64{"dro_beta": key["beta"]} }},
	"gspo": {task: "gspo", inputs: append([]string{"sequence_ratio_mask"}, compared...), with: clips,
		absent: map[string]float64{"sequence_ratio_mask": 1},
		keys:   map[string]float64{"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}},
}

// lossOf finds a loss and its objective.
func lossOf(in *forwardBackward) (l loss, o train.Objective, err error) {
	l, known := losses[in.Loss]
	switch {
	case in.Loss == "stable_reinforce":
		return l, o, serve.Bad("loss_fn", "stable_reinforce is not here: neither its formula nor its code is published")
	case !known:
		return l, o, serve.Bad("loss_fn", "there is no loss %.40q, expected one of %q", in.Loss,
			slices.Sorted(maps.Keys(losses)))
	}
	given := map[string]float64{}
	maps.Copy(given, in.Numbers)
	for _, key := range slices.Sorted(maps.Keys(in.Config)) { // the newer form of the same
		if in.Config[key].Number == nil {
			return l, o, serve.Bad("loss_fn_config", "%q is a text, expected a number", key)
		}
		given[key] = *in.Config[key].Number
	}
	keys := maps.Clone(l.keys)
	for key, x := range given {
		if _, known := keys[key]; !known {
			return l, o, serve.Bad("loss_fn_config", "%s has no %.40q, expected one of %q", in.Loss, key,
				slices.Sorted(maps.Keys(keys)))
		}
		if !statistics.Finite(x) {
			return l, o, serve.Bad("loss_fn_config", "%s is %v, expected a finite number", key, x)
		}
		keys[key] = x
	}
	var constants map[string]float64
	if l.with != nil {
		constants = l.with(keys)
	}
	o.PolicyLoss = torch.PolicyLoss{Task: torch.NewLoss(l.task, constants), Temperature: 1}
	return l, o, nil
}

// laid is a batch made of data: row first[i] and those after it are of datum i, one for each target of a position.
type laid struct {
	batch  *train.Batch
	first  []int
	shapes [][]int64   // of the targets, by datum
	ratio  [][]float32 // sequence_ratio_mask
}

// lay makes a batch of data. A datum is a sequence whose tokens come one place later than its targets, so the row has
// one more at the end, which nothing reads. Where positions have several targets, the rows differ in these alone:
// what they begin with is all of them, and is computed once.
func (l loss) lay(data []*datum, positions int64) (laid, error) {
	out := laid{batch: &train.Batch{}}
	b := out.batch
	for i, d := range data {
		tokens, inputs, err := d.read()
		if err != nil {
			return out, err
		}
		targets, n := inputs["target_tokens"], len(tokens)
		if n == 0 || int64(n) >= positions {
			return out, serve.Bad("model_input", "datum %d has %d tokens, expected 1 to %d", i, n, positions-1)
		}
		if len(targets.shape) == 0 || len(targets.shape) > 2 || targets.shape[0] != int64(n) ||
			len(targets.values) == 0 {
			return out, serve.Bad("target_tokens", "datum %d has %d tokens and targets of shape %v, expected [%d] or "+
				"[%d, K]", i, n, targets.shape, n, n)
		}
		columns, err := l.columns(i, inputs)
		if err != nil {
			return out, err
		}
		out.first, out.shapes = append(out.first, b.Len()), append(out.shapes, targets.shape)
		per := len(targets.values) / n
		for k := range per {
			ids, mask, target := make([]int32, n+1), make([]bool, n+1), make([]int32, n+1)
			copy(ids, tokens)
			for t := range n {
				mask[t+1] = targets.listed == nil || targets.listed[t*per+k]
				target[t+1] = int32(targets.values[t*per+k])
				if float64(target[t+1]) != targets.values[t*per+k] {
					return out, serve.Bad("target_tokens", "datum %d has the target %v, expected a token", i,
						targets.values[t*per+k])
				}
			}
			column := func(name string) []float32 {
				row := make([]float32, n+1)
				for t := range n {
					row[t+1] = float32(columns[name][t*per+k])
				}
				return row
			}
			b.Sequences = append(b.Sequences, train.Sequence{IDs: ids, Mask: mask, Targets: target})
			weights := slices.Repeat([]float32{1}, n+1)
			if l.task == "nll" {
				weights = column("weights")
			} else {
				b.Old, b.Advantages = append(b.Old, column("logprobs")), append(b.Advantages, column("advantages"))
			}
			b.Weights = append(b.Weights, weights)
			if l.task == "gspo" {
				out.ratio = append(out.ratio, column("sequence_ratio_mask"))
			}
		}
	}
	b.Current = make([][]float32, b.Len())
	return out, nil
}

// columns are the inputs of a datum beside its targets, each as long as these.
func (l loss) columns(i int, inputs map[string]array) (map[string][]float64, error) {
	targets, all := inputs["target_tokens"], map[string][]float64{}
	for _, name := range l.inputs {
		given, there := inputs[name]
		fill, optional := l.absent[name]
		switch {
		case there && !slices.Equal(given.shape, targets.shape):
			return nil, serve.Bad(name, "datum %d has %s of shape %v and targets of shape %v, expected the same", i,
				name, given.shape, targets.shape)
		case there:
			all[name] = given.values
		case optional:
			all[name] = slices.Repeat([]float64{fill}, len(targets.values))
		default:
			return nil, serve.Bad(name, "datum %d has no %s, which the loss reads", i, name)
		}
	}
	for name := range inputs {
		if name != "target_tokens" && !slices.Contains(l.inputs, name) {
			return nil, serve.Bad(name, "datum %d has %.40q, which the loss does not read: it reads target_tokens "+
				"and %q", i, name, l.inputs)
		}
	}
	return all, nil
}

// sequenceRatios fills what gspo reads: the mean of log-prob - old log-prob over the tokens that the mask names.
func (b laid) sequenceRatios(current [][]float32) {
	for i, s := range b.batch.Sequences {
		sum, n := 0.0, 0.0
		for t := range s.IDs {
			sum += float64(b.ratio[i][t]) * (float64(current[i][t]) - float64(b.batch.Old[i][t]))
			n += float64(b.ratio[i][t])
		}
		b.batch.OverBatch = append(b.batch.OverBatch, slices.Repeat([]float32{float32(sum / max(n, 1))}, len(s.IDs)))
	}
}

// passes runs a loss over data: forward, and unless only that is asked for backward into the model's gradients.
func (m *model) passes(ctx context.Context, in *forwardBackward) (any, error) {
	l, objective, err := lossOf(in)
	if err != nil {
		return nil, err
	}
	rows, err := l.lay(in.Data, m.learner.Model.Config.MaxPositions)
	if err != nil {
		return nil, err
	}
	if l.task == "gspo" {
		current, err := m.learner.Compute(ctx, rows.batch, train.What{Temperature: 1})
		if err != nil {
			return nil, err
		}
		rows.sequenceRatios(current)
	}
	column := train.Column{Name: torch.Task, Kind: torch.TermTask}
	if !in.ForwardOnly {
		column.Into = m.learner.Gradients()
	}
	found, err := m.learner.Backward(ctx, rows.batch, objective, []train.Column{column})
	if err != nil {
		return nil, err
	}
	return rows.output(found.Columns[0].Loss)
}

// output makes a ForwardBackwardOutput: a record per run of data whose positions have as many targets.
func (b laid) output(loss float64) ([]byte, error) {
	out := forwardBackwardOutput{Kind: "ArrayRecord", Metrics: map[string]float64{"loss:sum": loss}}
	for from := 0; from < len(b.shapes); {
		to, trailing, per := from, b.shapes[from][1:], 1
		if len(trailing) > 0 {
			per = int(trailing[0])
		}
		values, offsets := []float32{}, []int64{0}
		for ; to < len(b.shapes) && slices.Equal(b.shapes[to][1:], trailing); to++ {
			for t := range b.shapes[to][0] {
				for k := range per {
					values = append(values, b.batch.Current[b.first[to]+k][t+1])
				}
			}
			offsets = append(offsets, int64(4*len(values)))
		}
		out.Records = append(out.Records, &arrayRecord{Kind: "ArrayRecord", Datums: int64(to - from),
			Fields: map[string]*batched{"logprobs": {bytesOf(values), bytesOf(offsets), dtypeFloat32, trailing}}})
		from = to
	}
	return marshal(&out)
}
