package trainer

import (
	"context"
	"io"
	"math"
	"slices"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// Buckets add up to the whole batch, components to the gradient of the whole loss as the update computes it.
func TestGradientsAddUp(t *testing.T) {
	want := readSlow(t)["exact_gae_old"]
	cfg, err := config.Parse("slow.toml", []byte(want.toml()), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := openProbe(context.Background(), cfg, Probe{Rollouts: slow + "/" + want.Config.Episodes,
		Console: metrics.NewConsole(io.Discard)})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	chosen, err := p.prepared(t.Context(), p.given, false)
	if err != nil {
		t.Fatal(err)
	}
	subject := subjectOf(p.Session, chosen)
	buckets, err := bucketsOf(cfg, chosen.Selection)
	if err != nil {
		t.Fatal(err)
	}
	buffer := func() *torch.Gradients {
		g, err := torch.NewGradients(p.Actor.Model)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { g.Close() })
		return g
	}
	columns := func(task, entropy, kl *torch.Gradients) []train.Column {
		out := train.Terms(task, false)
		out[1].Into, out[2].Into = entropy, kl
		return out
	}
	backward := func(rows []int, out []train.Column) {
		if _, err := p.Actor.Backward(context.Background(), subject.Batch.Take(rows), subject.Objective,
			out); err != nil {
			t.Fatal(err)
		}
	}
	parts := columns(buffer(), buffer(), buffer())
	for _, b := range buckets {
		backward(b.Rows(), parts)
	}
	everything := train.All(chosen.Batch.Len())
	whole := columns(buffer(), buffer(), buffer())
	backward(everything, whole)
	total, together := buffer(), buffer()
	backward(everything, columns(together, together, together))
	pairs := [][2]*torch.Gradients{{total, together}}
	for i, part := range parts {
		pairs = append(pairs, [2]*torch.Gradients{part.Into, whole[i].Into})
		if err := total.Add(part.Into, 1); err != nil {
			t.Fatal(err)
		}
	}
	for _, pair := range pairs {
		norm, err := pair[1].Norm()
		if err != nil {
			t.Fatal(err)
		}
		if err := pair[0].Add(pair[1], -1); err != nil {
			t.Fatal(err)
		}
		difference, err := pair[0].Norm()
		if err != nil {
			t.Fatal(err)
		}
		if difference > 1e-5*norm || norm == 0 {
			t.Errorf("the sum of the parts is %.2g away from a whole of norm %.2g", difference, norm)
		}
	}
}

// The energies of tokens equal 1 − 2π + Σπ² with the distribution written out, one vocabulary entry at a time.
func TestEnergiesOfTokens(t *testing.T) {
	want := readSlow(t)["exact_gae_old"]
	cfg, err := config.Parse("slow.toml", []byte(want.toml()), nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Rollout.Temperature, cfg.Algorithm.Advantage = 0.7, "optimal_token_baseline"
	cfg.Actor.RecomputeLogprobs = true
	p, err := openProbe(t.Context(), cfg, Probe{Rollouts: slow + "/" + want.Config.Episodes,
		Console: metrics.NewConsole(io.Discard)})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	chosen, err := p.prepared(t.Context(), p.given[:2], true)
	if err != nil {
		t.Fatal(err)
	}
	sequence, compared := chosen.Batch.Sequences[1], 0
	for at, sampled := range sequence.Mask {
		if !sampled {
			continue
		}
		every := &train.Batch{}
		for id := range p.Actor.Model.Config.VocabSize {
			own := train.Sequence{IDs: append(slices.Clone(sequence.IDs[:at]), int32(id)), Mask: make([]bool, at+1)}
			own.Mask[at] = true
			every.Sequences = append(every.Sequences, own)
		}
		logprobs, err := p.Actor.Compute(t.Context(), every, train.What{Temperature: 0.7})
		if err != nil {
			t.Fatal(err)
		}
		energy := 1.0
		for id, column := range logprobs {
			probability := math.Exp(float64(column[at]))
			energy += probability * probability
			if int32(id) == sequence.IDs[at] {
				energy -= 2 * probability
			}
		}
		if got := chosen.energies[1][at]; math.Abs(got-energy) > 1e-5 {
			t.Errorf("token %d: energy %v, want %v", at, got, energy)
		}
		if compared++; compared == 5 {
			break
		}
	}
	if compared == 0 {
		t.Error("no token was compared")
	}
}

// algorithm.kl_in = "advantage" subtracts each token's divergence from its own advantage and from no other.
func TestDivergenceInAdvantages(t *testing.T) {
	want := readSlow(t)["exact_gae_old"]
	prepared := func(change func(a *config.Algorithm)) *train.Batch {
		cfg, err := config.Parse("slow.toml", []byte(want.toml()), nil)
		if err != nil {
			t.Fatal(err)
		}
		change(&cfg.Algorithm)
		p, err := openProbe(t.Context(), cfg, Probe{Rollouts: slow + "/" + want.Config.Episodes,
			Console: metrics.NewConsole(io.Discard)})
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		state := session.State{}
		p.preparation.penalty, _ = state.Penalty(cfg.Algorithm)
		chosen, err := p.prepared(t.Context(), p.given, true)
		if err != nil {
			t.Fatal(err)
		}
		return chosen.Batch
	}
	plain := prepared(func(a *config.Algorithm) { a.KLCoef, a.KLIn = 0, "loss" })
	distilled := func(a *config.Algorithm) { a.KLCoef, a.KLIn, a.KLEstimator = 0.5, "advantage", "k1" }
	beside := prepared(distilled)
	alone := prepared(func(a *config.Algorithm) { distilled(a); a.ZeroTaskAdvantage = true })
	moved := false
	for i, sequence := range plain.Sequences {
		for at, sampled := range sequence.Mask {
			if !sampled {
				continue
			}
			divergence := float64(beside.Old[i][at]) - float64(beside.Reference[i][at])
			moved = moved || divergence != 0
			near(t, "the teacher alone", float64(alone.Advantages[i][at]), -0.5*divergence, 1, 1e-6)
			near(t, "beside the task", float64(beside.Advantages[i][at]), float64(plain.Advantages[i][at])-0.5*divergence, 1, 1e-6)
		}
	}
	if !moved {
		t.Error("the reference is the policy: nothing was tested")
	}
}

// prepared are given episodes, chosen by the filter (unless all are kept) and with their columns filled.
func (p *probe) prepared(ctx context.Context, episodes []*episode.Episode, keepAll bool) (*Prepared, error) {
	chosen, err := p.preparation.choose(ctx, episodes, keepAll)
	if err != nil {
		return nil, err
	}
	s, err := p.preparation.prepare(ctx, chosen, p.from, 0, metrics.Line{})
	return &s, err
}
