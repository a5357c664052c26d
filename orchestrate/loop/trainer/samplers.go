package trainer

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/run/interrupt"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// order is what rank 0 wants of the ranks that only sample. All ranks hear it, and those that sample answer where it
// asks for something.
type order struct {
	Begin   *beginning // first of all
	Step    int        // play the batch of a step; 0: say what is under way, and stand still until the next
	Batch   int
	Weights bool // which come at once: those that the step begins with
	End     bool
}

// beginning is where a run goes on.
type beginning struct {
	From  string // its checkpoint; "" for none
	Type  string // of the arithmetic
	ISA   string // of the kernels
	Step  int    // steps done
	Batch int    // the next
}

// answer is what a rank that samples has played.
type answer struct {
	Share    rollout.Share
	Spent    rollout.Beside // since the answer before
	Fresh    bool
	UnderWay []rollout.UnderWay
}

// Samples tells whether a rank only samples (fsdp.samplers).
func Samples(c *config.Config, w *ranks.World) bool {
	return w != nil && c.FSDP.Samplers > 0 && w.Rank() >= w.Size()-c.FSDP.Samplers
}

// samplers are the ranks that only sample, as each of those that train has them.
type samplers struct {
	rollout.WindowOptions
	all     *ranks.World
	policy  *torch.Model
	player  *rollout.Player
	version int // of the weights that they have; -1: none
	fresh   bool
	spent   rollout.Beside
}

// divide gives a rank that trains those that sample, and lets it see only those that train.
func divide(ctx context.Context, c *config.Config, o *session.Options) (s *samplers, err error) {
	n := c.FSDP.Samplers
	if n == 0 || o.World == nil {
		return nil, nil
	}
	s = &samplers{all: o.World, version: -1}
	o.World, err = o.World.Part(ctx, 0, o.World.Size()-n)
	return s, err
}

// begin tells the samplers where the run goes on.
func (s *samplers) begin(ctx context.Context, t *Trainer, from string, o rollout.WindowOptions) error {
	s.WindowOptions, s.policy, s.player = o, t.Actor.Model, t.Sampler.Player
	isa, err := torch.InstructionSetInUse()
	if err != nil {
		return err
	}
	t.Log.Infof("%d ranks train and %d sample", t.World.Size(), s.all.Size()-t.World.Size())
	return s.send(ctx, order{Begin: &beginning{from, t.Config.Model.DType, isa.Name, t.State.Step, o.First}})
}

// send gives the samplers an order. A run without samplers has nobody to tell.
func (s *samplers) send(ctx context.Context, o order) error {
	if s == nil {
		return nil
	}
	_, err := ranks.Broadcast(ctx, s.all, o)
	return err
}

// answers are those of the samplers, in their order.
func (s *samplers) answers(ctx context.Context) ([]answer, error) {
	all, err := ranks.Gather(ctx, s.all, answer{})
	if err != nil {
		return nil, err
	}
	return all[len(all)-s.Processes:], nil
}

// Next implements ahead's window: the batch is made of what each sampler has played.
func (s *samplers) Next(ctx context.Context, step, batch int) ([]*episode.Episode, rollout.Stats, error) {
	o := order{Step: step, Batch: batch, Weights: s.version != step-1}
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

// Fresh implements ahead's window.
func (s *samplers) Fresh() bool { return s.fresh }

// Spent implements ahead's window: since the batch before this step's was complete.
func (s *samplers) Spent() (spent rollout.Beside) {
	spent, s.spent = s.spent, rollout.Beside{}
	return spent
}

// UnderWay implements ahead's window.
func (s *samplers) UnderWay(ctx context.Context) (under []rollout.UnderWay, err error) {
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

// Close implements ahead's window.
func (s *samplers) Close() error { return nil }

// Sampler is a run as a rank has it that only samples. The weights of each step come from those that train; between
// their orders it plays what may be played ahead.
type Sampler struct {
	*session.Session
	options session.Options
	all     *ranks.World
	window  *rollout.Window
}

// NewSampler waits for nothing yet. Close it.
func NewSampler(c *config.Config, o session.Options) *Sampler {
	return &Sampler{session.New(c, metrics.NewConsole(io.Discard), nil), o, o.World, nil}
}

// Run samples until the run ends.
func (s *Sampler) Run(ctx context.Context) (outcome session.Outcome, err error) {
	interrupt.Graceful(ctx) // those who train say when it ends
	for {
		var o order
		err = s.beside(ctx, func(ctx context.Context) (err error) {
			o, err = ranks.Broadcast(ctx, s.all, order{})
			return err
		})
		if err == nil && o.End {
			return outcome, interrupt.Cause(ctx)
		}
		if err == nil {
			err = s.follow(ctx, o)
		}
		if cause := interrupt.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
		if err != nil {
			return outcome, s.all.Cause(err)
		}
	}
}

// beside waits for others and plays meanwhile.
func (s *Sampler) beside(ctx context.Context, wait func(context.Context) error) error {
	if s.window == nil {
		return wait(ctx)
	}
	return s.window.Beside(ctx, wait)
}

// follow does what an order says.
func (s *Sampler) follow(ctx context.Context, o order) (err error) {
	var a answer
	switch {
	case o.Begin != nil:
		return s.open(ctx, *o.Begin)
	case o.Step > 0:
		if o.Weights {
			if err = s.window.Changing(); err == nil {
				err = checkpoint.Copy(ctx, s.all.Group(), s.Actor.Model, true)
			}
		}
		if err == nil {
			a.Share, err = s.window.Share(ctx, o.Step, o.Batch)
		}
		a.Fresh, a.Spent = s.window.Fresh(), s.window.Spent()
	default:
		if err = s.window.Changing(); err == nil { // replies are completed where they are to be
			a.UnderWay, err = s.window.UnderWay(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("playing step %d (train): %w", o.Step, err)
	}
	return s.beside(ctx, func(ctx context.Context) error {
		_, err := ranks.Gather(ctx, s.all, a)
		return err
	})
}

// open loads a policy, whose weights are still to come, and begins what was under way.
func (s *Sampler) open(ctx context.Context, b beginning) error {
	isa, err := torch.InstructionSetInUse()
	if err == nil && isa.Name != b.ISA {
		return fmt.Errorf("its kernels are those of %s, expected %s as on rank 0, whose log-probs have other bits: "+
			"set GYRE_ISA to one that all processors have", isa.Name, b.ISA)
	}
	own := *s.Config
	own.Model.DType = b.Type
	s.Config = &own
	if _, err := s.Open(ctx, experiment.Parts{Learn: true, Play: true}, nil, nil); err != nil {
		return err
	}
	options, err := windowOptions(s.Config, s.options, b.Step, b.Batch, s.all)
	if err != nil {
		return err
	}
	options.Process = s.all.Rank() - (s.all.Size() - options.Processes)
	if s.window, err = rollout.NewWindow(ctx, s.Sampler.Player, options); err != nil {
		return err
	}
	under, err := readUnderWay(b.From)
	if err == nil {
		err = s.window.Restore(under)
	}
	return err
}

// Close ends what is under way and frees everything.
func (s *Sampler) Close() {
	if s.window != nil {
		s.window.Close() // what does not close harms nobody any more
	}
	s.Session.Close()
}
