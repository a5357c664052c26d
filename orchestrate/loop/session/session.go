package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/endpoint"
	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/loop/schedule"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
	"gyre/torch"
)

// Session is a command at work on a configuration: its models, what plays episodes with them, and where it speaks. It
// changes when it is opened and closed only.
type Session struct {
	Config    *config.Config // with the type of the arithmetic settled
	Console   *metrics.Console
	Log       *rundir.Log
	World     *ranks.World // the processes that do it together
	Tenant    *Tenant      // of a process that runs several sessions; nil when this is the only one
	Machine   *experiment.Machine
	Actor     *train.Learner
	Critic    *train.Learner    // nil unless the estimator needs one
	Reference *train.Learner    // nil unless something uses it
	Teacher   *endpoint.Teacher // the reference, where it is a server's
	Sampler   *Sampler          // nil when nothing is played

	base  *torch.Model // that the run's adapters lie beside; nil without
	shard string       // fsdp.shard, settled; "" until models are opened
}

// New is a session without models, of a process alone unless a world is given. Close it.
func New(c *config.Config, console *metrics.Console, world *ranks.World) *Session {
	return &Session{Config: c, Console: console, Log: &rundir.Log{Console: console},
		World: cmp.Or(world, ranks.Alone())}
}

// Close frees everything. It may be called on a half-opened session.
func (s *Session) Close() {
	s.Sampler.Close()
	s.Critic.Close()
	s.Actor.Close()
	s.Reference.Close()
	s.Teacher.Close()
	if s.base != nil {
		s.base.Close()
	}
}

// Locate finds a checkpoint, model.path when none is named, says which damaged ones were passed over, and settles the
// type. It is collective.
func (s *Session) Locate(ctx context.Context, path string) (checkpoint.Models, error) {
	if path == "" {
		path = s.Config.Model.Path
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return checkpoint.Models{Actor: path}, nil // opening it says where models come from
		}
	}
	from, passed, err := checkpoint.Find(path, rundir.CheckpointPrefix)
	for _, problem := range passed {
		s.Log.Warnf("passed over: %v", problem)
	}
	if err != nil {
		return from, err
	}
	return from, s.settle(ctx, path)
}

// settle chooses the type of the arithmetic where the configuration leaves it open: that of the run which the models
// in from belong to, or the one that is faster on the processors of all ranks. It is collective.
func (s *Session) settle(ctx context.Context, from string) error {
	dtype, why, err := s.agreed(ctx, from)
	if err == nil {
		s.useType(dtype, why)
	}
	return err
}

// agreed is what settle chooses; why is "" where the configuration says it. It is collective.
func (s *Session) agreed(ctx context.Context, from string) (dtype torch.Compute, why string, err error) {
	on, why, err := experiment.Settle(experiment.Wished(s.Config), from)
	if err != nil || why == "" {
		return on.Compute, "", err
	}
	other, err := s.World.Any(ctx, on.Compute != torch.ComputeBF16)
	if other && on.Compute == torch.ComputeBF16 {
		return torch.ComputeF32, "not every rank's processor multiplies faster in bfloat16", err
	}
	return on.Compute, why, err
}

// useType replaces the type in this session's configuration, and says so if there is a reason: others may use the
// caller's.
func (s *Session) useType(dtype torch.Compute, why string) {
	if why == "" {
		return
	}
	own := *s.Config
	own.Model.DType = string(dtype)
	s.Config = &own
	s.Log.Infof("model.dtype = \"auto\": %s, %s", dtype, why)
}

// Open opens an experiment and loads its models and its sampler.
func (s *Session) Open(ctx context.Context, parts experiment.Parts, actor,
	critic *train.Optimization) (*experiment.Experiment, error) {
	opened, err := experiment.Open(s.Config, parts)
	if err != nil {
		return nil, err
	}
	if s.Machine == nil {
		if s.Machine, err = experiment.OpenMachine(s.Config.Run.Threads, experiment.Placement(s.Config),
			s.Log.Warnf); err != nil {
			return nil, err
		}
	}
	if opened, err = s.chooseShard(ctx, opened); err != nil {
		return nil, err
	}
	if err := s.loadModels(opened, actor, critic); err != nil {
		return nil, err
	}
	if m := s.Config.Model; parts.Reference && s.Config.Algorithm.KLCoef != 0 && m.RemoteReference() {
		if s.Teacher, err = endpoint.OpenTeacher(ctx, endpoint.Config{URL: m.Reference, Model: m.ReferenceName,
			Key: os.Getenv(m.ReferenceKeyEnv), ModelFlag: "model.reference_name", KeyFlag: "model.reference_key_env",
			Warn: s.Log.Warnf}); err != nil {
			return nil, fmt.Errorf("model.reference: %w", err)
		}
	}
	if parts.Play {
		if err := s.tensorParallel(ctx); err != nil {
			return nil, err
		}
	}
	if parts.Play || parts.Show {
		if s.Sampler, err = newSampler(opened, s.Actor.Model, s.Tenant); err != nil {
			return nil, err
		}
		s.Sampler.Player.Divide(s.World, s.samplerRanks())
	}
	return opened, nil
}

// chooseShard settles what is sharded over the ranks, for the one with the least memory, and says what it is. It is
// collective.
func (s *Session) chooseShard(ctx context.Context, opened *experiment.Experiment) (*experiment.Experiment, error) {
	auto, memory := s.World.Processes() > 1 && s.Config.FSDP.Shard == experiment.AutoShard, int64(0)
	if auto {
		least, err := s.World.Max(ctx, -float64(experiment.RankMemory(s.Config, s.World.LocalSize)))
		if err != nil {
			return nil, err
		}
		memory = int64(-least)
	}
	opened, err := opened.LeastSharing(s.World.Size(), memory)
	if err != nil {
		return nil, err
	}
	s.shard = opened.Config.FSDP.Shard
	if auto {
		const gib = 1 << 30
		s.Log.Infof("fsdp.shard = \"auto\": %s: each of %d ranks needs about %.1f GiB of %.1f GiB", s.shard,
			s.World.Size(), float64(opened.PlanMemory().Peak())/gib,
			float64(memory)/gib)
	}
	return opened, nil
}

// tensorParallel lets neighbouring ranks sample from the policy together, where the configuration says so. It is
// collective.
func (s *Session) tensorParallel(ctx context.Context) error {
	n := s.samplerRanks()
	if n < s.Config.Engine.TensorParallel {
		s.Log.Infof("engine.tensor_parallel = %d: this is one process, which samples alone",
			s.Config.Engine.TensorParallel)
	}
	if n <= 1 {
		return nil
	}
	s.Log.Infof("every %d neighbouring ranks sample together", n)
	group, err := s.World.TensorParallel(ctx, n)
	if err == nil {
		err = s.Actor.Model.TensorParallel(group)
	}
	if err != nil {
		return fmt.Errorf("engine.tensor_parallel = %d: %w", n, err)
	}
	return nil
}

// samplerRanks is how many ranks sample together: one process does so alone.
func (s *Session) samplerRanks() int { return min(s.Config.Engine.TensorParallel, s.World.Size()) }

// ProveExact tests whether the sampler's log-probs equal the trainer's on this machine: old log-probs need not be
// recomputed then. A gap that a step has found already is a proof of the contrary.
func (s *Session) ProveExact(ctx context.Context, found float64) (bool, error) {
	if found > 0 {
		s.Log.Warnf("a step found the sampler's log-probs to differ by up to %.2g from the trainer's: old log-probs are "+
			"recomputed every step", found)
		return false, nil
	}
	if err := s.Actor.Model.Gather(); err != nil {
		return false, err
	}
	gap, err := LogprobGap(ctx, s.Actor.Model, s.Sampler.Engine, experiment.Temperature(s.Config))
	if err == nil { // on any rank's machine
		gap, err = s.World.Max(ctx, gap)
	}
	if err != nil {
		return false, fmt.Errorf("self-test of the sampler: %w", err)
	}
	if gap != 0 {
		s.Log.Warnf("on this machine the sampler's log-probs differ from the trainer's by up to %.2g: old log-probs "+
			"are recomputed every step", gap)
	}
	return gap == 0, nil
}

// loadModels loads what an experiment has; learners without a way of learning only compute.
func (s *Session) loadModels(from *experiment.Experiment, actor, critic *train.Optimization) (err error) {
	if s.Actor, err = s.loadLearner("policy", from.Policy, from.Policy, actor); err != nil {
		return err
	}
	if from.Critic != nil {
		if s.Critic, err = s.loadLearner("critic", from.Critic, from.Policy, critic); err != nil {
			return err
		}
	}
	if from.Reference != nil {
		s.Reference, err = s.loadLearner("KL reference", from.Reference, from.Policy, nil)
	}
	return err
}

// load loads a model. Adapters of one base share it, and so does who only reads that base.
func (s *Session) load(from, policy *experiment.Model) (model *torch.Model, notes []string, err error) {
	if !from.Beside(policy.Trains.Base()) {
		return from.LoadOver(s.sharding())
	}
	if s.base == nil {
		if s.base, notes, err = s.Tenant.Base(policy, s.sharding()); err != nil {
			return nil, nil, err
		}
	}
	model, err = from.Trains.Attach(s.base, from.Shape.Head, s.sharding())
	return model, notes, err
}

func (s *Session) loadLearner(who string, from, policy *experiment.Model,
	how *train.Optimization) (*train.Learner, error) {
	model, notes, err := s.load(from, policy)
	if err != nil {
		return nil, fmt.Errorf("loading the %s: %w", who, err)
	}
	for _, note := range notes { // what is worth knowing about the weights
		s.Log.Infof("%s", note)
	}
	l, err := train.NewLearner(model, s.Placement(), how)
	if err == nil {
		l.Trains = from.Trains
		err = model.SetRecompute(s.Config.Actor.RecomputeActivations)
	}
	if err != nil {
		model.Close()
		return nil, fmt.Errorf("the %s: %w", who, err)
	}
	return l, nil
}

// PolicyOptimization is all that changes the policy's weights, as [actor] and [lora] say, with the schedule of its rate
// for runs of so many optimizer steps.
func PolicyOptimization(c *config.Config, steps int) (*train.Optimization, schedule.Schedule) {
	a, l := c.Actor, c.LoRA
	seed, _ := c.AdapterSeeds()
	adamw := torch.AdamW{Beta1: a.Betas[0], Beta2: a.Betas[1], Eps: a.Eps, WeightDecay: a.WeightDecay}
	return &train.Optimization{AdamW: adamw, ClipGrad: a.ClipGrad, Dropout: l.InPasses(), Seed: seed},
		schedule.Schedule{Kind: a.Schedule, Peak: l.LearningRate(a.LR), Floor: a.MinLRRatio, Warmup: a.WarmupSteps,
			Total: steps}
}

// CriticOptimization is all that changes the critic's, as [critic] and [lora] say.
func CriticOptimization(c *config.Config, steps int) (*train.Optimization, schedule.Schedule) {
	k, l := c.Critic, c.LoRA
	_, seed := c.AdapterSeeds()
	adamw := torch.AdamW{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: k.WeightDecay}
	return &train.Optimization{AdamW: adamw, ClipGrad: k.ClipGrad, Dropout: l.InPasses(), Seed: seed},
		schedule.Schedule{Kind: k.Schedule, Peak: l.LearningRate(k.LR), Warmup: k.WarmupSteps, Total: steps}
}

// sharding says how the models of a run lie on its ranks.
func (s *Session) sharding() checkpoint.Ranks {
	f := s.Config.FSDP
	return checkpoint.Ranks{Group: s.World.Group(), Shards: torch.ShardConfig{Shard: s.shard, Replicas: f.Replicas,
		Prefetch: f.Prefetch, BFloat16: f.WireDType == "bfloat16", Deterministic: f.Deterministic, Lanes: f.Lanes}}
}

// Placement says over what passes are dealt.
func (s *Session) Placement() train.Placement {
	p := train.Placement{World: s.World, PassTokens: s.Config.Actor.MicroBatchTokens,
		InStep: s.sharding().InShards()}
	if s.Config.FSDP.Deterministic {
		p.Lanes = s.Config.FSDP.Lanes
	}
	return p
}

// Sampler is everything that plays episodes with a policy.
type Sampler struct {
	Tokenizer *chat.Tokenizer
	Engine    generation.Sampler // nil where only experts play
	Player    *rollout.Player
}

// newSampler puts an engine and a player around the loaded policy of an experiment that was opened to play; where
// only experts play, there is no engine. A tenant samples with the engine that it shares.
func newSampler(e *experiment.Experiment, policy *torch.Model, tenant *Tenant) (*Sampler, error) {
	c, sampler := e.Config, &Sampler{Tokenizer: e.Tokenizer}
	var engine generation.Engine // stays nil where only experts play
	if e.Parts.Play {
		var err error
		if sampler.Engine, err = tenant.engineOf(policy, c); err != nil {
			return nil, fmt.Errorf("creating the sampler: %w", err)
		}
		engine = sampler.Engine
	}
	sampler.Player = newPlayer(e, engine)
	return sampler, nil
}

func newPlayer(e *experiment.Experiment, engine generation.Engine) *rollout.Player {
	c := e.Config
	p := rollout.NewPlayer(e.Tokenizer, engine, c.Rollout, c.Rewards, c.Run.Seed)
	p.KeepStates(c.Algorithm.UsesStates())
	p.JudgeFrom(c.Validation.SuccessAt)
	return p
}

// Close frees engine and environments; nil is closed already.
func (s *Sampler) Close() {
	if s != nil {
		s.Player.Close() // an environment that does not close harms nobody any more
		if s.Engine != nil {
			s.Engine.Close()
		}
	}
}
