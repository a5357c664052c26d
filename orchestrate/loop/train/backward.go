package train

import (
	"context"
	"maps"
	"slices"

	"gyre/orchestrate/loop/ranks"
	"gyre/torch"
)

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
		return l.each(ctx, b, rows, func(p pass) error {
			losses, err := l.backward(p, o, columns)
			if err != nil {
				return err
			}
			sum := found[lane]
			sum.Add(losses)
			found[lane] = sum
			if b.Progress != nil {
				b.Progress(p.begun() * l.on.World.Size()) // the other ranks are about as far
			}
			return nil
		})
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
	p := pass{batch: b}
	if row >= 0 {
		p.segments = b.segments(row)
	}
	return l.backward(p, o, columns)
}

// backward runs one forward pass and the backward passes of the columns.
func (l *Learner) backward(p pass, o Objective, columns []Column) (Losses, error) {
	b := p.batch
	if l.Model.Config.Head == torch.HeadValue {
		return l.valueBackward(p, o, columns[0])
	}
	in := torch.PolicyInputs{OldLogprobs: p.gather(b.Old), Advantages: p.gather(b.Advantages),
		Weights: p.gather(b.Weights), Behaviour: p.gather(b.Behaviour), OverBatch: p.gather(b.OverBatch),
		Importance: p.gather(b.Importance), Dropout: o.Dropout}
	if o.KL == torch.KLSupport {
		in.Support = p.support()
	} else if o.KL != torch.KLNone {
		in.RefLogprobs = p.gather(b.Reference)
	}
	terms := make([]torch.Term, len(columns))
	for i, c := range columns {
		terms[i] = torch.Term{Name: c.Name, Kind: c.Kind, Advantages: p.gather(c.Advantages),
			Weights: p.gather(c.Weights), Into: c.Into}
	}
	packed := p.pack()
	if b.Current != nil {
		in.LogprobsOut = make([]float32, len(packed.IDs))
	}
	stats, err := l.Model.PolicyBackward(packed, in, o.PolicyLoss, terms)
	if err != nil {
		return Losses{}, err
	}
	if b.Current != nil {
		p.scatter(in.LogprobsOut, b.Current)
	}
	out := Losses{Tokens: stats.Tokens, LogRatio: stats.LogRatio, LogprobGapMax: stats.LogprobGapMax}
	for _, c := range columns {
		out.Columns = append(out.Columns, stats.Terms[c.Name])
	}
	return out, nil
}

// valueBackward runs those of a value network, whose loss is one column.
func (l *Learner) valueBackward(p pass, o Objective, c Column) (Losses, error) {
	b := p.batch
	stats, err := l.Model.ValueBackward(p.pack(), torch.ValueInputs{Returns: p.gather(b.Returns),
		OldValues: p.gather(b.Values), Weights: p.gather(b.Weights), Clip: o.ClipValue, Dropout: o.Dropout}, c.Into)
	if err != nil {
		return Losses{}, err
	}
	return Losses{Columns: []Loss{{Loss: stats.Loss, Clipped: stats.Clipped}}, Tokens: stats.Tokens,
		ValueSum: stats.ValueSum}, nil
}
