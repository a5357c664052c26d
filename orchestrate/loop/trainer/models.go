package trainer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/schedule"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
	"gyre/torch"
)

// equipment is what every phase of a run works with. It changes when a run is opened and closed only; what a phase has to remember is in
// the phase.
type equipment struct {
	config    *config.Config
	console   *metrics.Console
	log       *rundir.Log
	machine   *experiment.Machine
	actor     *train.Learner
	critic    *train.Learner      // nil unless the estimator needs one
	reference *train.Learner      // nil unless something uses it
	sampler   *experiment.Sampler // nil when nothing is played
	replay    *replay             // episodes that are given instead of played; nil as a rule
	world     *ranks.World        // the other processes of the run; nil when it has one
}

// close frees everything. It may be called on half-opened equipment.
func (e *equipment) close() {
	e.sampler.Close()
	e.critic.Close()
	e.actor.Close()
	e.reference.Close()
}

// locate finds a checkpoint, model.path when none is named, says which damaged ones were passed over, and settles the type. It is collective.
func (e *equipment) locate(ctx context.Context, path string) (checkpoint.Models, error) {
	if path == "" {
		path = e.config.Model.Path
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return checkpoint.Models{Actor: path}, nil // opening it says where models come from
		}
	}
	from, passed, err := checkpoint.Find(path, rundir.CheckpointPrefix)
	for _, problem := range passed {
		e.log.Warnf("passed over: %v", problem)
	}
	if err != nil {
		return from, err
	}
	return from, e.settle(ctx, path)
}

// settle chooses the type of the arithmetic where the configuration leaves it open. It is collective.
func (e *equipment) settle(ctx context.Context, from string) error {
	dtype, why, err := e.agreed(ctx, from)
	if err != nil {
		return err
	}
	e.useType(dtype, why)
	return nil
}

// agreed is the type of the run which the models in from belong to, or the one that is faster on the processors of all ranks; why is "" where the
// configuration says it. It is collective.
func (e *equipment) agreed(ctx context.Context, from string) (dtype torch.Compute, why string, err error) {
	on, why, err := experiment.Settle(experiment.Wished(e.config), from)
	if err != nil || why == "" {
		return on.Compute, "", err
	}
	other, err := e.world.Any(ctx, on.Compute != torch.ComputeBF16)
	if other && on.Compute == torch.ComputeBF16 {
		return torch.ComputeF32, "not every rank's processor multiplies faster in bfloat16", err
	}
	return on.Compute, why, err
}

// useType replaces the type in this equipment's configuration, and says so if there is a reason: others may use the caller's.
func (e *equipment) useType(dtype torch.Compute, why string) {
	if why == "" {
		return
	}
	own := *e.config
	own.Model.DType = string(dtype)
	e.config = &own
	e.log.Infof("model.dtype = \"auto\": %s, %s", dtype, why)
}

// open opens an experiment and loads its models and its sampler.
func (e *equipment) open(ctx context.Context, parts experiment.Parts, actor, critic *train.Optimization) (*experiment.Experiment, error) {
	opened, err := experiment.Open(e.config, parts)
	if err != nil {
		return nil, err
	}
	if e.machine == nil {
		if e.machine, err = experiment.OpenMachine(e.config.Run.Threads, experiment.Placement(e.config), e.log.Warnf); err != nil {
			return nil, err
		}
	}
	if err := e.loadModels(opened, actor, critic); err != nil {
		return nil, err
	}
	if parts.Play {
		if err := e.share(ctx); err != nil {
			return nil, err
		}
		e.sampler, err = opened.NewSampler(e.actor.Model)
	}
	return opened, err
}

// share lets neighbouring ranks sample from the policy together, where engine.tensor_parallel says so. It is collective.
func (e *equipment) share(ctx context.Context) error {
	switch n := e.config.Engine.TensorParallel; {
	case n <= 1:
		return nil
	case e.world == nil:
		e.log.Infof("engine.tensor_parallel = %d: this is one process, which samples alone", n)
		return nil
	default:
		e.log.Infof("every %d neighbouring ranks sample together", n)
	}
	team, err := e.world.Team(ctx, e.together())
	if err == nil {
		err = e.actor.Model.Share(team)
	}
	if err != nil {
		return fmt.Errorf("engine.tensor_parallel = %d: %w", e.together(), err)
	}
	return nil
}

// together is how many ranks sample together: one process does so alone.
func (e *equipment) together() int {
	if e.world == nil {
		return 1
	}
	return e.config.Engine.TensorParallel
}

// proveExact tests whether the sampler's log-probs equal the trainer's on this machine: old log-probs need not be recomputed then. A gap that
// a step has found already is a proof of the contrary.
func (e *equipment) proveExact(ctx context.Context, found float64) (bool, error) {
	if found > 0 {
		e.log.Warnf("a step found the sampler's log-probs up to %.2g away from the trainer's: old log-probs are recomputed every step", found)
		return false, nil
	}
	if err := e.actor.Model.Gather(); err != nil {
		return false, err
	}
	gap, err := experiment.LogprobGap(ctx, e.actor.Model, e.sampler.Engine, temperature(e.config))
	if err == nil { // on any rank's machine
		gap, err = e.world.Max(ctx, gap)
	}
	if err != nil {
		return false, fmt.Errorf("self-test of the sampler: %w", err)
	}
	if gap != 0 {
		e.log.Warnf("on this machine the sampler's log-probs differ from the trainer's by up to %.2g: old log-probs are recomputed every step", gap)
	}
	return gap == 0, nil
}

// load reads a model's weights and says what is worth knowing about them.
func (e *equipment) load(who string, from *experiment.Model) (*torch.Model, error) {
	model, notes, err := from.LoadOver(e.sharding())
	if err != nil {
		return nil, fmt.Errorf("loading the %s: %w", who, err)
	}
	for _, note := range notes {
		e.log.Infof("%s", note)
	}
	return model, nil
}

// loadModels loads what an experiment has; learners without a way of learning only compute.
func (e *equipment) loadModels(from *experiment.Experiment, actor, critic *train.Optimization) (err error) {
	if e.actor, err = e.loadLearner("policy", from.Policy, actor); err != nil {
		return err
	}
	if from.Critic != nil {
		if e.critic, err = e.loadLearner("critic", from.Critic, critic); err != nil {
			return err
		}
	}
	if from.Reference != nil {
		e.reference, err = e.loadLearner("KL reference", from.Reference, nil)
	}
	return err
}

func (e *equipment) loadLearner(who string, from *experiment.Model, how *train.Optimization) (*train.Learner, error) {
	model, err := e.load(who, from)
	if err != nil {
		return nil, err
	}
	l, err := train.NewLearner(model, e.placement(), how)
	if err == nil {
		err = model.SetRecompute(e.config.Actor.RecomputeActivations)
	}
	if err != nil {
		model.Close()
		return nil, fmt.Errorf("the %s: %w", who, err)
	}
	return l, nil
}

// policyOptimization is that of [actor], with its schedule for runs of so many optimizer steps.
func policyOptimization(a config.Actor, steps int) (*train.Optimization, schedule.Schedule, error) {
	lr, err := schedule.New(schedule.Schedule{Kind: a.Schedule, Peak: a.LR, Floor: a.MinLRRatio, Warmup: a.WarmupSteps, Total: steps})
	if err != nil {
		return nil, lr, fmt.Errorf("actor.schedule: %w", err)
	}
	adamw := torch.AdamW{Beta1: a.Betas[0], Beta2: a.Betas[1], Eps: a.Eps, WeightDecay: a.WeightDecay}
	return &train.Optimization{AdamW: adamw, ClipGrad: a.ClipGrad}, lr, nil
}

// criticOptimization is that of [critic].
func criticOptimization(k config.Critic, steps int) (*train.Optimization, schedule.Schedule, error) {
	lr, err := schedule.New(schedule.Schedule{Kind: k.Schedule, Peak: k.LR, Warmup: k.WarmupSteps, Total: steps})
	if err != nil {
		return nil, lr, fmt.Errorf("critic.schedule: %w", err)
	}
	adamw := torch.AdamW{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: k.WeightDecay}
	return &train.Optimization{AdamW: adamw, ClipGrad: k.ClipGrad}, lr, nil
}

// sharding says how the models of a run lie on its ranks; nil in one process whose gradients need not have the bits of several.
func (e *equipment) sharding() checkpoint.Ranks {
	f := e.config.FSDP
	if e.world == nil && !f.Deterministic {
		return checkpoint.Ranks{}
	}
	shard := f.Shard
	if e.world == nil {
		shard = torch.ShardNone
	}
	return checkpoint.Ranks{Group: e.world.Data(), Shards: &torch.ShardConfig{Shard: shard, Replicas: f.Replicas, Prefetch: f.Prefetch, WireDtype: f.WireDType,
		Deterministic: f.Deterministic, Lanes: f.Lanes}}
}

// placement says over what passes are dealt.
func (e *equipment) placement() train.Placement {
	p := train.Placement{World: e.world, PassTokens: e.config.Actor.MicroBatchTokens, InStep: e.config.FSDP.Shard == torch.ShardFull}
	if e.config.FSDP.Deterministic {
		p.Lanes = e.config.FSDP.Lanes
	}
	return p
}
