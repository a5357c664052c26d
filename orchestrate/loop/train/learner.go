package train

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"gyre/orchestrate/loop/ranks"
	"gyre/torch"
)

// Learner is a model on the ranks of a run: a policy, a value network, or a reference that only scores. It belongs to
// one goroutine.
type Learner struct {
	Model     *torch.Model
	Optimizer *torch.Optimizer // nil where nothing changes the weights
	gradients *torch.Gradients // nil where nothing changes the weights
	clip      float64
	dropout   float64
	seed      uint64
	moved     float64 // bytes that an optimizer step reads and writes at least
	on        Placement
	// Guest, if not nil, uses the model too.
	Guest Guest
}

// Guest uses a model between the passes of those who train it.
type Guest interface {
	// Between is called after a pass: the weights are those of before.
	Between(ctx context.Context) error
	// Changing is called before the weights change.
	Changing() error
}

// between gives the guest its turn.
func (l *Learner) between(ctx context.Context) error {
	if l.Guest == nil {
		return nil
	}
	return l.Guest.Between(ctx)
}

// Placement says over what a model's passes are dealt.
type Placement struct {
	World      *ranks.World // nil: one process
	PassTokens int          // that a forward pass takes at most
	// InStep: the weights are in shards, so that every pass takes all ranks.
	InStep bool
	// Lanes fix the order of sums over ranks, whose bits then do not depend on how many there are; 0: they may.
	Lanes int
}

// Optimization says how a model's weights change.
type Optimization struct {
	torch.AdamW
	ClipGrad float64 // the largest norm of a gradient; longer ones are scaled down
	Dropout  float64 // of an adapter's inputs
	Seed     uint64  // that what is dropped follows from
}

// NewLearner takes over a model. Without an optimization it only computes. Close it; after an error the model is
// still the caller's.
func NewLearner(model *torch.Model, on Placement, how *Optimization) (l *Learner, err error) {
	l = &Learner{Model: model, on: on}
	if how == nil {
		return l, nil
	}
	l.clip, l.dropout, l.seed = how.ClipGrad, how.Dropout, how.Seed
	if l.Optimizer, err = torch.NewOptimizer(model, how.AdamW); err != nil {
		return nil, fmt.Errorf("creating the optimizer: %w", err)
	}
	if l.gradients, err = torch.NewGradients(model); err != nil {
		l.Optimizer.Close()
		return nil, fmt.Errorf("creating the gradient buffer: %w", err)
	}
	if l.moved, err = traffic(l.Optimizer, l.gradients.Len()); err != nil {
		return nil, errors.Join(err, l.gradients.Close(), l.Optimizer.Close())
	}
	return l, nil
}

// traffic is how many bytes a step of an optimizer for so many parameters reads and writes at least on this rank: it
// reads weights, gradients and both moments, and writes all but the gradients, in float32.
func traffic(o *torch.Optimizer, parameters int) (bytes float64, err error) {
	for i := range parameters {
		held, err := o.Shard(torch.FirstMoment, i)
		if err != nil {
			return 0, err
		}
		shape, err := held.Tensor.Shape()
		held.Tensor.Close()
		if err != nil {
			return 0, err
		}
		bytes += 7 * 4 * float64(torch.Parameter{Shape: shape}.Elements())
	}
	return bytes, nil
}

// Work is what has been computed with the model, and the memory traffic of its optimizer's steps.
func (l *Learner) Work() torch.Work {
	work := l.Model.Work()
	if l.Optimizer != nil {
		work.Bytes += l.moved * float64(l.Optimizer.Steps())
	}
	return work
}

// Close frees model, optimizer and gradients; nil is closed already.
func (l *Learner) Close() {
	if l == nil {
		return
	}
	if l.Optimizer != nil {
		l.gradients.Close()
		l.Optimizer.Close()
	}
	l.Model.Close()
}

// Gradients implements Policy.
func (l *Learner) Gradients() *torch.Gradients { return l.gradients }

// InStep reports whether every pass takes all ranks.
func (l *Learner) InStep() bool { return l.on.World != nil && l.on.InStep }

// OneByOne reports whether the gradient of a single sequence takes a pass of all ranks: shards hold sums over ranks
// only, unless these have a fixed order.
func (l *Learner) OneByOne() bool { return l.InStep() && l.on.Lanes == 0 }

// Step implements Policy.
func (l *Learner) Step(lr float64) (torch.StepResult, error) {
	if l.Guest != nil {
		if err := l.Guest.Changing(); err != nil {
			return torch.StepResult{}, err
		}
	}
	result, err := l.Optimizer.Step(l.gradients, lr, l.clip)
	if err != nil {
		return result, err
	}
	return result, l.gradients.Zero()
}

// Dropout is what the passes of the next optimizer step drop. It follows from a seed and the steps before, so that a
// resumed run goes on with it.
func (l *Learner) Dropout() torch.Dropout {
	if l.dropout == 0 {
		return torch.Dropout{}
	}
	key := sha256.Sum256(fmt.Appendf(nil, "dropout/%d/%d", l.seed, l.Optimizer.Steps()))
	return torch.Dropout{Probability: l.dropout, Key: binary.LittleEndian.Uint64(key[:])}
}

// Configure changes the hyper-parameters of the steps to come.
func (l *Learner) Configure(how Optimization) error {
	l.clip = how.ClipGrad
	return l.Optimizer.Configure(how.AdamW)
}

// Score implements Policy.
func (l *Learner) Score(ctx context.Context, b *Batch, what What) ([][]float32, error) {
	rows, column := l.mine(b), make([][]float32, b.Len())
	passes, err := l.passes(ctx, b, rows)
	if err != nil {
		return nil, err
	}
	for _, micro := range passes {
		values, err := l.compute(b.pack(micro), what)
		if err != nil {
			return nil, err
		}
		b.scatter(micro, values, column)
		if err := l.between(ctx); err != nil {
			return nil, err
		}
	}
	return column, l.Complete(ctx, rows, column)
}

// ScoreBy computes a column by a function that another program may answer: of each segment by itself.
func (l *Learner) ScoreBy(ctx context.Context, b *Batch,
	score func(ctx context.Context, segments [][]int32) ([][]float32, error)) ([][]float32, error) {
	rows, column := l.mine(b), make([][]float32, b.Len())
	var mine []segment
	var ids [][]int32
	for _, row := range rows {
		for _, s := range b.segments(row) {
			mine, ids = append(mine, s), append(ids, b.ids(s))
		}
	}
	found, err := score(ctx, ids)
	if err != nil {
		return nil, err
	}
	b.scatter(mine, slices.Concat(found...), column)
	return column, l.Complete(ctx, rows, column)
}

// Complete fills a column, of which every rank knows some rows, on all ranks.
func (l *Learner) Complete(ctx context.Context, rows []int, column [][]float32) error {
	return complete(ctx, l, rows, column)
}

func complete[T any](ctx context.Context, l *Learner, rows []int, column []T) error {
	if l.on.World == nil {
		return nil
	}
	known := map[int]T{}
	for _, row := range rows {
		known[row] = column[row]
	}
	all, err := ranks.Gather(ctx, l.on.World, known)
	for _, own := range all {
		for row, values := range own {
			column[row] = values
		}
	}
	return err
}

func (l *Learner) compute(packed torch.Batch, what What) ([]float32, error) {
	if l.Model.Config.Head == torch.HeadValue {
		return l.Model.Values(packed)
	}
	scores, err := l.Model.Score(packed, what.Temperature, what.Entropy)
	if what.Entropy {
		return scores.Entropies, err
	}
	return scores.Logprobs, err
}

// Backward implements Policy.
func (l *Learner) Backward(ctx context.Context, b *Batch, o Objective, columns []Column) (Losses, error) {
	if ctx.Err() != nil {
		return Losses{}, context.Cause(ctx)
	}
	into := make([]*torch.Gradients, len(columns))
	for i, c := range columns {
		into[i] = c.Into
	}
	found := map[int]Losses{}
	err := l.deal(b, into, func(lane int, rows []int) error {
		passes, err := l.passes(ctx, b, rows)
		if err != nil {
			return err
		}
		for _, micro := range passes {
			losses, err := l.pass(b, micro, o, columns)
			if err != nil {
				return err
			}
			sum := found[lane]
			sum.Add(losses)
			found[lane] = sum
			if b.Progress != nil {
				b.Progress(begun(micro) * l.on.World.Size()) // the other ranks are about as far
			}
			if err := l.between(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && b.Current != nil {
		mine := slices.DeleteFunc(All(b.Len()), func(row int) bool { return b.Current[row] == nil })
		err = l.Complete(ctx, mine, b.Current)
	}
	if err != nil {
		return Losses{}, err
	}
	return l.total(ctx, len(columns), found)
}

// total adds up what the lanes of all ranks found, in the order of lanes and then of ranks.
func (l *Learner) total(ctx context.Context, columns int, found map[int]Losses) (Losses, error) {
	all, err := ranks.Gather(ctx, l.on.World, found)
	if err != nil {
		return Losses{}, err
	}
	lanes := map[int]Losses{}
	for _, own := range all {
		for lane, losses := range own {
			sum := lanes[lane]
			sum.Add(losses)
			lanes[lane] = sum
		}
	}
	total := Losses{Columns: make([]Loss, columns)}
	for _, lane := range slices.Sorted(maps.Keys(lanes)) {
		total.Add(lanes[lane])
	}
	return total, nil
}

// EachRow deals the rows of a batch to the ranks and calls visit for each on the rank that it is dealt to, to add
// gradients to the buffers by [Learner.Alone]. Where passes take all ranks, visit is called equally often on all of
// them: with row -1 where this rank has none left. Where the gradient of one sequence takes all ranks, they visit
// every row, which only one of them owns.
func (l *Learner) EachRow(ctx context.Context, b *Batch, into []*torch.Gradients,
	visit func(row int, own bool) error) error {
	if l.OneByOne() {
		for row := range b.Len() {
			if err := visit(row, row%l.on.World.Size() == l.on.World.Rank()); err != nil {
				return err
			}
		}
		return nil
	}
	return l.deal(b, into, func(_ int, rows []int) error {
		passes, err := l.most(ctx, len(rows))
		for k := 0; err == nil && k < passes; k++ {
			if k < len(rows) {
				err = visit(rows[k], true)
			} else {
				err = visit(-1, false)
			}
		}
		return err
	})
}

// Alone runs one pass over a single row, or over none (-1) on a rank that goes along with the others' passes, and
// gives what this rank found.
func (l *Learner) Alone(b *Batch, row int, o Objective, columns []Column) (Losses, error) {
	if row < 0 {
		return l.pass(b, nil, o, columns)
	}
	return l.pass(b, b.segments(row), o, columns)
}

// pass runs one forward pass and the backward passes of the columns.
func (l *Learner) pass(b *Batch, micro []segment, o Objective, columns []Column) (Losses, error) {
	if l.Model.Config.Head == torch.HeadValue {
		return l.valuePass(b, micro, o, columns[0])
	}
	in := torch.PolicyInputs{OldLogprobs: gather(micro, b.Old), Advantages: gather(micro, b.Advantages),
		Weights: gather(micro, b.Weights), Behaviour: gather(micro, b.Behaviour),
		OverBatch: gather(micro, b.OverBatch), Importance: gather(micro, b.Importance), Dropout: o.Dropout}
	if o.KL == torch.KLSupport {
		in.Support = b.gatherSupport(micro)
	} else if o.KL != torch.KLNone {
		in.RefLogprobs = gather(micro, b.Reference)
	}
	terms := make([]torch.Term, len(columns))
	for i, c := range columns {
		terms[i] = torch.Term{Name: c.Name, Kind: c.Kind, Advantages: gather(micro, c.Advantages),
			Weights: gather(micro, c.Weights), Into: c.Into}
	}
	packed := b.pack(micro)
	if b.Current != nil {
		in.LogprobsOut = make([]float32, len(packed.IDs))
	}
	stats, err := l.Model.PolicyBackward(packed, in, o.PolicyLoss, terms)
	if err != nil {
		return Losses{}, err
	}
	if b.Current != nil {
		b.scatter(micro, in.LogprobsOut, b.Current)
	}
	out := Losses{Tokens: stats.Tokens, LogRatio: stats.LogRatio, LogprobGapMax: stats.LogprobGapMax}
	for _, c := range columns {
		out.Columns = append(out.Columns, stats.Terms[c.Name])
	}
	return out, nil
}

// valuePass runs those of a value network, whose loss is one column.
func (l *Learner) valuePass(b *Batch, micro []segment, o Objective, c Column) (Losses, error) {
	stats, err := l.Model.ValueBackward(b.pack(micro), torch.ValueInputs{Returns: gather(micro, b.Returns),
		OldValues: gather(micro, b.Values), Weights: gather(micro, b.Weights), Clip: o.ClipValue,
		Dropout: o.Dropout}, c.Into)
	if err != nil {
		return Losses{}, err
	}
	return Losses{Columns: []Loss{{Loss: stats.Loss, Clipped: stats.Clipped}}, Tokens: stats.Tokens,
		ValueSum: stats.ValueSum}, nil
}

// mine are this rank's rows of a batch.
func (l *Learner) mine(b *Batch) []int {
	return b.partition(l.on.World.Size())[l.on.World.Rank()]
}

// deal gives run this rank's rows of a batch, whose gradients run adds to the buffers: they become those of all ranks
// when they are first looked at. Where sums have a fixed order, the rows are dealt to lanes, and run is called for
// each lane of this rank in turn.
func (l *Learner) deal(b *Batch, into []*torch.Gradients, run func(lane int, rows []int) error) error {
	if l.on.Lanes == 0 || !l.Model.Sharded() {
		return run(0, l.mine(b))
	}
	first, n := l.Model.Lanes()
	for k, rows := range b.partition(l.on.Lanes)[first:][:n] {
		for _, g := range slices.Compact(slices.Clone(into)) {
			if g == nil {
				continue
			}
			if err := g.BeginLane(first + k); err != nil {
				return err
			}
		}
		if err := run(first+k, rows); err != nil {
			return err
		}
	}
	return nil
}

// passes cuts rows, this rank's, into micro-batches. Where passes take all ranks, each gets as many as the rank with
// most: the last ones of the others are empty.
func (l *Learner) passes(ctx context.Context, b *Batch, rows []int) ([][]segment, error) {
	out := b.microBatches(rows, l.on.PassTokens)
	most, err := l.most(ctx, len(out))
	return append(out, make([][]segment, most-len(out))...), err
}

// most is the largest n of all ranks where passes take all of them.
func (l *Learner) most(ctx context.Context, n int) (int, error) {
	if !l.InStep() {
		return n, nil
	}
	most, err := l.on.World.Max(ctx, float64(n))
	return max(int(most), n), err
}
