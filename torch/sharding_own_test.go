package torch

import (
	"errors"
	"fmt"
	"slices"
)

func init() { rankBodies["own"] = ownGradientsStayOwn }

// ownGradientsStayOwn gives every rank another number of sequences, each through a buffer of its own.
func ownGradientsStayOwn(group *Group) error {
	config := shardConfigs()["llama"]
	eager, err := NewShardedModel(config, group, ShardConfig{})
	if err != nil {
		return err
	}
	defer eager.Close()
	if _, err := NewOwnGradients(eager); !errors.Is(err, ErrInvalidArgument) {
		return fmt.Errorf("a model without whole gradients: %v", err)
	}
	for _, s := range []ShardConfig{{Shard: ShardNone}, {Shard: ShardOptimizer}, {Shard: ShardNone, Deterministic: true,
		Lanes: 6}} {
		if err := ownGradients(group, config, s); err != nil {
			return fmt.Errorf("%+v: %w", s, err)
		}
	}
	return nil
}

func ownGradients(group *Group, config ModelConfig, s ShardConfig) error {
	m, err := NewShardedModel(config, group, s)
	if err != nil {
		return err
	}
	defer m.Close()
	alone, err := NewModel(config)
	if err != nil {
		return err
	}
	defer alone.Close()
	if err := errors.Join(fillHeld(m), fillHeld(alone)); err != nil {
		return err
	}
	var buffers [4]*Gradients // own, and the sum over ranks; a single sequence's, and that of all, of the model alone
	for i, make := range []func() (*Gradients, error){
		func() (*Gradients, error) { return NewOwnGradients(m) }, func() (*Gradients, error) { return NewGradients(m) },
		func() (*Gradients, error) { return NewOwnGradients(alone) }, func() (*Gradients,
			error) {
			return NewGradients(alone)
		},
	} {
		if buffers[i], err = make(); err != nil {
			return err
		}
		defer buffers[i].Close()
	}
	own, sum, one, all := buffers[0], buffers[1], buffers[2], buffers[3]
	first, lanes := m.Lanes()
	for i, sequence := range trainingSequences(7, config.VocabSize) {
		if err := errors.Join(one.Zero(), pass(alone, []trainingData{sequence}, one), all.Add(one, 2)); err != nil {
			return err
		}
		if i*i%group.WorldSize() != group.Rank() { // as it happens: no collective may be among what follows
			continue
		}
		if s.Deterministic {
			if err := sum.BeginLane(first + min(i, lanes-1)); err != nil {
				return err
			}
		}
		if err := errors.Join(own.Zero(), pass(m, []trainingData{sequence}, own), sum.Add(own, 2)); err != nil {
			return err
		}
		got, err := own.Sketch(101)
		if err != nil {
			return err
		}
		want, err := one.Sketch(101)
		if err != nil || !slices.Equal(got, want) {
			return fmt.Errorf("the sketch of sequence %d is %v, alone %v (%v)", i, got, want, err)
		}
	}
	if _, err := own.Norm(); !errors.Is(err, ErrInvalidArgument) {
		return fmt.Errorf("the norm of one rank's own: %v", err)
	}
	_, got, err := sum.Dot(sum)
	if err != nil {
		return err
	}
	_, want, err := all.Dot(all)
	if err != nil {
		return err
	}
	if err := same(got, want, 1e-6); err != nil {
		return fmt.Errorf("inner products of the sum: %w", err)
	}
	if !s.Deterministic {
		return nil
	}
	// With lanes sketches of sums do not depend on the number of ranks either, given the sums' bits.
	sketch, err := sum.Sketch(101)
	if err != nil {
		return err
	}
	expected, err := all.Sketch(101)
	if err != nil {
		return err
	}
	return same(doubles(sketch), doubles(expected), 1e-5)
}
