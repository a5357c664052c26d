package plot

import (
	"fmt"
	"strings"

	"gonum.org/v1/plot/vg"
)

// trainingPanels are the panels of training.png in their order; those without data are left out.
var trainingPanels = []curves{
	{title: "Success rate", unit: "episodes (%)", factor: 100, low: 0, high: 100, list: []curve{
		{key: "train/*/success", label: "training"},
		{key: "val-env/*/success", label: "validation", validation: true, share: true},
	}},
	{title: "Return", unit: "mean return per episode", list: []curve{
		{key: "train/charts/avg_episode_return", label: "training"},
		{key: "val-env/charts/avg_episode_return", label: "validation", validation: true},
		{key: "critic/score/mean", label: "score of kept episodes"},
	}},
	{title: "Turns with a valid action", unit: "turns (%)", factor: 100, low: 0, high: 100, list: []curve{
		{key: "train/*/action_is_valid", label: "training"},
		{key: "val-env/*/action_is_valid", label: "validation", validation: true},
	}},
	{title: "Reward spread", unit: "in-group std of returns", list: []curve{
		{key: "rollout/in_group_reward_std", label: "all groups"},
		{key: "rollout/chosen_in_group_reward_std", label: "kept groups"},
	}},
	{title: "Groups kept by the filter", unit: "groups (%)", factor: 100, low: 0, high: 100, list: []curve{
		{key: "rollout/filter_kept_ratio"},
	}},
	{title: "Policy entropy", unit: "nats per token", list: []curve{{key: "actor/entropy"}}},
	{title: "Policy change per update", unit: "KL(old || new) (nats)", list: []curve{{key: "actor/ppo_kl"}}},
	{title: "Distance to the reference", unit: "KL (nats per token)", list: []curve{
		{key: "actor/kl_loss", label: "in the loss"},
		{key: "actor/reward_kl_penalty", label: "in the reward"},
	}},
	{title: "Clipped tokens", unit: "tokens (%)", factor: 100, list: []curve{
		{key: "actor/pg_clipfrac", label: "ratio clip"},
		{key: "actor/pg_clipfrac_lower", label: "dual clip"},
	}},
	{title: "Gradient norm before clipping", unit: "L2 norm", log: true, list: []curve{
		{key: "actor/grad_norm", label: "actor"},
		{key: "critic/grad_norm", label: "critic"},
		{key: "train/grad_norm", label: "supervised"},
	}},
	{title: "Policy loss", unit: "loss", list: []curve{{key: "actor/pg_loss"}}},
	{title: "Value loss", unit: "loss", log: true, list: []curve{{key: "critic/vf_loss"}}},
	{title: "Variance explained by the critic", unit: "1 − Var(R − V) / Var(R)", list: []curve{{key: "critic/vf_explained_var"}}},
	{title: "Cross-entropy", unit: "nats per token", list: []curve{
		{key: "train/loss", label: "training"},
		{key: "val/loss", label: "held out", validation: true},
	}},
	{title: "Learning rate", unit: "learning rate", list: []curve{{key: "train/lr"}}},
	{title: "Response length", unit: "tokens per episode", list: []curve{{key: "response_length"}}},
}

// training is the figure of training curves; it has no panels when nothing of them was logged.
func (r *Run) training() figure {
	xLabel, what := "training step", "every step"
	if len(r.keys("train/loss")) > 0 {
		xLabel, what = "epoch", "every epoch"
	}
	var notes []string
	if n := window(len(r.Records)); n > 1 {
		notes = append(notes, fmt.Sprintf("thin: %s; thick: moving average over about %d of them", what, n))
	}
	if note := r.intervals(); note != "" {
		notes = append(notes, note)
	}
	f := figure{title: r.Name, caption: strings.Join(notes, "; "), columns: 3, width: 2.7 * vg.Inch, height: 1.75 * vg.Inch}
	for _, c := range trainingPanels {
		if p, ok := c.panel(r, xLabel); ok {
			f.panels = append(f.panels, p)
		}
	}
	if p, ok := r.timePanel(xLabel); ok {
		f.panels = append(f.panels, p)
	}
	return f
}

// intervals describes the error bars of validation results, if there are any.
func (r *Run) intervals() string {
	for tag, n := range r.episodes {
		switch {
		case len(r.series("val-env/"+tag+"/success")) == 0:
		case len(r.episodes) == 1:
			return fmt.Sprintf("error bars: 95 %% interval of validation success over %d episodes", n)
		default:
			return "error bars: 95 % interval of validation success"
		}
	}
	return ""
}
