package trainer

import (
	"fmt"
	"math"
	"slices"

	"gyre/internal/masks"
	"gyre/internal/statistics"
	"gyre/orchestrate/loop/advantage"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/filter"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// episodeMetrics describe the episodes that were played.
type episodeMetrics struct {
	Environments rollout.Environments `metric:"train"`
	Length       *float64             `metric:"response_length" unit:"tokens" doc:"sampled per episode"`
	Prompt       metrics.Extent       `metric:"prompt_length,omitzero" unit:"tokens" doc:"before the first reply"`
	Cut          *float64             `metric:"response_length/cut_ratio" unit:"share" doc:"of replies that rollout.max_tokens cut off: near 0"`
	Clipped      float64              `metric:"response_length/clip_ratio" unit:"share" doc:"of episodes that ended because they reached rollout.max_length"`
	Scores       metrics.Table        `metric:"rollout/reward_table" doc:"table: a column per group (group_0 …), a row per member, its score before filtering"`
}

// newEpisodeMetrics says what episodes were like; nil where there are none.
func newEpisodeMetrics(episodes []*episode.Episode) *episodeMetrics {
	if len(episodes) == 0 {
		return nil
	}
	found, clipped := rollout.Summarize(episodes), 0
	m := episodeMetrics{Environments: found.Environments, Length: found.Length, Cut: found.Cut, Scores: rewardTable(episodes)}
	for _, e := range episodes {
		n := slices.Index(e.Mask, true)
		if n < 0 {
			n = len(e.IDs)
		}
		m.Prompt.Add(float64(n))
		if e.Stop == "length" {
			clipped++
		}
	}
	m.Clipped = float64(clipped) / float64(len(episodes))
	return &m
}

// selectionMetrics say what the filter did and whether a step had anything to learn from.
type selectionMetrics struct {
	Filter      *filter.Metrics `metric:"rollout"`
	Attempts    int             `metric:"train/rollout_attempts" doc:"1: a step plays once, also when the filter keeps nothing"`
	Empty       bool            `metric:"rollout/empty_after_filter" doc:"1 if the filter kept nothing: the step is skipped"`
	EmptyInARow int             `metric:"rollout/consecutive_empty_after_filter_steps" doc:"steps in a row in which the filter kept nothing"`
}

// analysisOnly marks the steps of a run that only analyses.
type analysisOnly struct {
	Only          int `metric:"trainer/gradient_analysis_only" doc:"1: the run analyses and changes nothing (analysis.only)"`
	ActorSkipped  int `metric:"actor/skipped_for_gradient_analysis_only" doc:"1: the policy was not updated"`
	CriticSkipped int `metric:"critic/skipped_for_gradient_analysis_only" doc:"1: the critic was not updated"`
}

// batchMetrics are the sizes of the batch trained on.
type batchMetrics struct {
	Episodes    int `metric:"train/batch_size,omitzero" doc:"episodes trained on"`
	MiniBatches int `metric:"train/num_mini_batches,omitzero" doc:"optimizer steps that they make per epoch"`
	Tokens      int `metric:"perf/total_num_tokens" doc:"tokens of the episodes trained on, prompts included"`
}

// scoreMetrics compare policies: the sampler, the trainer and the reference.
type scoreMetrics struct {
	Gap        *float64 `metric:"rollout/logprob_gap_max" unit:"nats" doc:"largest difference between the sampler's and the trainer's log-prob of a sampled token: exactly 0 on the CPU"`
	Equal      *bool    `metric:"rollout/sampler_equals_trainer" doc:"1 while the sampler's log-probs serve as old log-probs; 0 from the step on that measured a gap: they are computed again then"`
	Reference  *float64 `metric:"rollout/ref_log_prob" unit:"nats" doc:"mean log-prob of the sampled tokens under the KL reference"`
	Mass       *float64 `metric:"rollout/ref_top_k_mass" unit:"share" doc:"of the KL reference's probability that its algorithm.kl_top_k likeliest tokens have, mean over the sampled tokens: towards 1"`
	Coef       *float64 `metric:"actor/reward_kl_penalty_coeff" doc:"coefficient of the KL penalty, where it is in the rewards"`
	Divergence *float64 `metric:"actor/reward_kl_penalty" unit:"nats" doc:"mean KL estimate per token that was charged"`
}

// dataMetrics are verl's data metrics of a prepared batch.
type dataMetrics struct {
	Score      metrics.Extent `metric:"critic/score,omitzero" unit:"reward" doc:"scores of the episodes trained on"`
	Rewards    metrics.Extent `metric:"critic/rewards,omitzero" unit:"reward" doc:"sums of their token rewards, with the KL penalty in them"`
	Advantages metrics.Extent `metric:"critic/advantages,omitzero" doc:"per sampled token"`
	Returns    metrics.Extent `metric:"critic/returns,omitzero" unit:"reward" doc:"per sampled token"`
	Values     metrics.Extent `metric:"critic/values,omitzero" unit:"reward" doc:"per sampled token, before the critic's update"`
	Length     metrics.Extent `metric:"response_length,omitzero" unit:"tokens" doc:"sampled per episode trained on"`
	Explained  *float64       `metric:"critic/vf_explained_var" unit:"share" doc:"1 − Var(R−V)/Var(R) over sampled tokens: towards 1"`
}

func newDataMetrics(s *Prepared, trajectories []advantage.Trajectory) *dataMetrics {
	var m dataMetrics
	var residual, target statistics.Moments
	for i, e := range s.Episodes {
		m.Score.Add(e.Score)
		m.Rewards.Add(statistics.Sum(trajectories[i].Rewards))
		m.Length.Add(float64(e.PolicyTokens()))
		for t := range masks.Tokens(e.Mask) {
			ret := float64(s.Batch.Returns[i][t])
			m.Advantages.Add(float64(s.Batch.Advantages[i][t]))
			m.Returns.Add(ret)
			if s.Batch.Values != nil {
				v := float64(s.Batch.Values[i][t])
				m.Values.Add(v)
				residual.Add(ret - v)
				target.Add(ret)
			}
		}
	}
	if s.Batch.Values != nil {
		m.Explained = new(1 - residual.Variance()/(target.Variance()+1e-5))
	}
	return &m
}

// fitMetrics are those of the optimizer steps of actor or critic.
type fitMetrics struct {
	GradNorm *float64 `metric:"grad_norm" doc:"global L2 norm of the gradient before clipping, mean of the step's optimizer steps: no spikes of 10×"`
	Rate     *float64 `metric:"lr" doc:"learning rate of the step"`
	Skipped  int      `metric:"skipped_steps,omitzero" doc:"optimizer steps that were skipped because the norm was not finite"`

	batches, applied int
	gap              float64 // the largest distance of an old log-prob from the new one in the first mini-batch
}

// actorMetrics are those of the policy's update.
type actorMetrics struct {
	Fit          fitMetrics `metric:"actor"`
	PolicyLoss   float64    `metric:"actor/pg_loss" doc:"clipped surrogate L = max(−Aρ, −A·clip(ρ, 1−lo, 1+hi)), dual clip −A·c for A < 0 (PPO, arXiv 1707.06347; dual clip, 1912.09729): around 0"`
	Clipped      *float64   `metric:"actor/pg_clipfrac" unit:"share" doc:"of tokens where the clip acted: below 0.3"`
	ClippedLower *float64   `metric:"actor/pg_clipfrac_lower" unit:"share" doc:"of tokens where the dual clip acted"`
	LogRatio     *float64   `metric:"actor/ppo_kl" unit:"nats" doc:"mean of old − new log-prob, each clamped to ±20 as in verl: below 0.05"`
	Entropy      float64    `metric:"actor/entropy" unit:"nats" doc:"aggregated entropy of the policy: falls slowly; towards 0 it has collapsed"`
	EntropyLoss  float64    `metric:"actor/entropy_loss" unit:"nats" doc:"the same, under verl's name"`
	KLLoss       *float64   `metric:"actor/kl_loss" unit:"nats" doc:"aggregated KL estimate to the reference, where it is in the loss"`
	KLCoef       *float64   `metric:"actor/kl_coef" doc:"its coefficient"`
	Balance      *float64   `metric:"actor/router_aux_loss" doc:"aggregated load of experts × Σ share × probability, by sequence and layer (arXiv 2101.03961): experts per token where loads are even, more where they are not"`
}

func newActorMetrics(o train.Objective, fit fitMetrics, sum train.Losses) actorMetrics {
	task, entropy, kl, n := sum.Columns[0], sum.Columns[1], sum.Columns[2], float64(fit.batches)
	m := actorMetrics{Fit: fit, PolicyLoss: task.Loss / n, Entropy: entropy.Value / n, EntropyLoss: entropy.Value / n}
	if t := sum.Tokens; t > 0 {
		m.Clipped, m.ClippedLower, m.LogRatio = new(task.Clipped/t), new(task.ClippedLower/t),
			new(sum.LogRatio/t)
	}
	if o.KL != torch.KLNone {
		m.KLLoss, m.KLCoef = new(kl.Value/n), new(o.KLCoef)
	}
	if len(sum.Columns) > 3 {
		m.Balance = new(sum.Columns[3].Value / n)
	}
	return m
}

// criticMetrics are those of the value network's update.
type criticMetrics struct {
	Fit     fitMetrics `metric:"critic"`
	Loss    float64    `metric:"critic/vf_loss" doc:"½·max((V−R)², (clip(V)−R)²): falling"`
	Clipped *float64   `metric:"critic/vf_clipfrac" unit:"share" doc:"of tokens where the clipped branch was larger"`
	Value   *float64   `metric:"critic/vpred_mean" unit:"reward" doc:"mean value per sampled token"`
}

func newCriticMetrics(fit fitMetrics, sum train.Losses) criticMetrics {
	m := criticMetrics{Fit: fit, Loss: sum.Columns[0].Loss / float64(fit.batches)}
	if t := sum.Tokens; t > 0 {
		m.Clipped, m.Value = new(sum.Columns[0].Clipped/t), new(sum.ValueSum/t)
	}
	return m
}

// rewardTable has a column per group and a row per member: its score. A group with fewer members than others ends in
// NaN.
func rewardTable(episodes []*episode.Episode) (t metrics.Table) {
	groups := session.Members(episodes)
	for i, group := range groups {
		t.Columns = append(t.Columns, fmt.Sprintf("group_%d", i))
		for k, e := range group {
			if k == len(t.Rows) {
				t.Rows = append(t.Rows, slices.Repeat([]any{math.NaN()}, len(groups)))
			}
			t.Rows[k][i] = e.Score
		}
	}
	return t
}
