package source

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/model/checkpoint"
	"gyre/torch"
)

// order is what rank 0 wants of the ranks that only sample. All ranks hear it, and those that sample answer where it
// asks for something.
type order struct {
	Begin   *beginning // first of all
	Step    int        // play the batch of a step; 0: say what is under way, and stand still until the next
	Batch   int
	Weights bool // which come at once: those that the step begins with
	Sizes   sizes
	End     bool
}

// beginning is where a run goes on.
type beginning struct {
	From  string // its checkpoint; "" for none
	Type  string // of the arithmetic
	ISA   string // of the kernels
	Step  int    // steps done
	Batch int    // the next
	Sizes sizes  // of those that may be begun
}

// answer is what a rank that samples has played.
type answer struct {
	Share    rollout.Share
	Spent    rollout.Background // since the answer before
	Fresh    bool
	UnderWay []rollout.UnderWay
}

// Samples tells whether a rank only samples (fsdp.samplers).
func Samples(c *config.Config, w *ranks.World) bool { return w.Rank() >= w.Size()-samplersOf(c, w) }

// samplersOf counts the ranks of a run that only sample: of one process none.
func samplersOf(c *config.Config, w *ranks.World) int { return min(c.FSDP.Samplers, w.Processes()-1) }

// Samplers are the ranks of a run that only sample, as each of those that train has them. A run may have none.
type Samplers struct {
	rollout.WindowOptions
	count   int
	all     *ranks.World // those that train and those that sample; this rank alone where none only samples
	policy  *torch.Model
	player  *rollout.Player
	version int // of the weights that they have; -1: none
	decided sizes
	fresh   bool
	spent   rollout.Background
}

// Divide gives a rank that trains those that sample, and lets it see only those that train.
func Divide(ctx context.Context, run *session.Session) (s *Samplers, err error) {
	s = &Samplers{count: samplersOf(run.Config, run.World), all: ranks.Alone(), version: -1}
	if s.count == 0 {
		return s, nil
	}
	s.all = run.World
	run.World, err = run.World.Part(ctx, 0, run.World.Size()-s.count)
	return s, err
}

// begin tells the samplers where the run goes on.
func (s *Samplers) begin(ctx context.Context, r Run, o rollout.WindowOptions, decided sizes) error {
	s.decided = decided
	s.WindowOptions, s.policy, s.player = o, r.Actor.Model, r.Sampler.Player
	isa, err := torch.InstructionSetInUse()
	if err != nil {
		return err
	}
	r.Log.Infof("%d ranks train and %d sample", r.World.Size(), s.count)
	return s.send(ctx, order{Begin: &beginning{r.From, r.Config.Model.DType, isa.Name, r.State.Step, o.First, decided}})
}

// End tells the samplers that the run ends.
func (s *Samplers) End(ctx context.Context) error { return s.send(ctx, order{End: true}) }

// send gives the samplers an order.
func (s *Samplers) send(ctx context.Context, o order) error {
	_, err := ranks.Broadcast(ctx, s.all, o)
	return err
}

// answers are those of the samplers, in their order.
func (s *Samplers) answers(ctx context.Context) ([]answer, error) {
	all, err := ranks.Gather(ctx, s.all, answer{})
	if err != nil {
		return nil, err
	}
	return all[len(all)-s.count:], nil
}

// Next implements window: the batch is made of what each sampler has played.
func (s *Samplers) Next(ctx context.Context, step, batch int) ([]*episode.Episode, rollout.Stats, error) {
	o := order{Step: step, Batch: batch, Weights: s.version != step-1, Sizes: s.decided}
	err := s.send(ctx, o)
	if err == nil && o.Weights {
		err = checkpoint.Copy(ctx, s.all.Group(), s.policy, false)
		s.version = step - 1
	}
	if err != nil {
		return nil, rollout.Stats{}, fmt.Errorf("weights of step %d for the samplers: %w", step, err)
	}
	all, err := s.answers(ctx)
	if err != nil {
		return nil, rollout.Stats{}, fmt.Errorf("the samplers' batch of step %d: %w", step, err)
	}
	var shares []rollout.Share
	for _, a := range all {
		shares = append(shares, a.Share)
		s.fresh = a.Fresh
		s.spent.Sampled, s.spent.Blocked = max(s.spent.Sampled, a.Spent.Sampled), max(s.spent.Blocked, a.Spent.Blocked)
	}
	return s.Batch(s.player, step, batch, shares)
}

// Fresh implements window.
func (s *Samplers) Fresh() bool { return s.fresh }

// Spent implements window: since the batch before this step's was complete.
func (s *Samplers) Spent() (spent rollout.Background) {
	spent, s.spent = s.spent, rollout.Background{}
	return spent
}

// UnderWay implements window.
func (s *Samplers) UnderWay(ctx context.Context) (under []rollout.UnderWay, err error) {
	if err := s.send(ctx, order{}); err != nil {
		return nil, err
	}
	all, err := s.answers(ctx)
	for _, a := range all {
		under = append(under, a.UnderWay...)
	}
	slices.SortFunc(under, func(a, b rollout.UnderWay) int {
		return cmp.Or(cmp.Compare(a.Batch, b.Batch), cmp.Compare(a.Episode, b.Episode))
	})
	return under, err
}

// Close implements window: the samplers hear of the end by [Samplers.End].
func (s *Samplers) Close() error { return nil }
