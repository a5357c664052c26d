package source

import (
	"context"
	"fmt"
	"io"
	"maps"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/run/interrupt"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// Sampler is a run as a rank has it that only samples. The weights of each step come from those that train; between
// their orders it plays what may be played ahead.
type Sampler struct {
	*session.Session
	options session.Options
	all     *ranks.World
	window  *rollout.Window // nil until the run begins
	decided sizes
}

// NewSampler waits for nothing yet. Close it.
func NewSampler(c *config.Config, o session.Options) *Sampler {
	return &Sampler{session.New(c, metrics.NewConsole(io.Discard), ranks.Alone()), o, o.World, nil, sizes{}}
}

// Run samples until the run ends.
func (s *Sampler) Run(ctx context.Context) (outcome session.Outcome, err error) {
	interrupt.Graceful(ctx) // those who train say when it ends
	for {
		var o order
		err = s.window.PlayWhile(ctx, func(ctx context.Context) (err error) {
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

// follow does what an order says.
func (s *Sampler) follow(ctx context.Context, o order) (err error) {
	var a answer
	switch {
	case o.Begin != nil:
		return s.open(ctx, *o.Begin)
	case o.Step > 0:
		maps.Copy(s.decided, o.Sizes)
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
	return s.window.PlayWhile(ctx, func(ctx context.Context) error {
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
	samplers := s.Config.FSDP.Samplers
	maps.Copy(s.decided, b.Sizes)
	options, err := windowOptions(s.Config, s.options, s.decided, b, samplers)
	if err != nil {
		return err
	}
	options.Process = s.all.Rank() - (s.all.Size() - samplers)
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
	s.window.Close() // what does not close harms nobody any more
	s.Session.Close()
}
