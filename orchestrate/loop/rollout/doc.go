// Package rollout plays episodes: it turns states into prompts, replies into actions, and both into token-aligned
// episodes with rewards.
//
//	          submit            step, poll                 workers (at most one task per episode)
//	prompt ─────────▶ engine  ─────────────▶ reply tokens ─▶ text ─▶ actions ─▶ environment ─▶ next prompt
//	   ▲                                                                                          │
//	   └──────────────────────────────────────────────────────────────────────────────────────────┘
//
// There are no barriers between turns: an episode whose reply is complete steps its environment at once and enters the
// batch again while others decode. What an episode contains does not depend on that order, because every random draw is
// keyed by (run seed, stream, step, episode, turn) or belongs to the episode's own environment.
//
// An episode is one growing list of tokens. The prompt of turn k+1 starts with the tokens of turn k, sampled ones
// included: they are turned into text for the environment but never made again from text, so the sampler's KV cache
// stays valid, the loss mask is exactly the sampled tokens, and log-probs belong to the tokens that are trained on.
//
// The loop, its penalties and its limits follow RAGEN (arXiv 2504.20073). Deviations, all on purpose:
//   - RAGEN normalises a reply's text (white space, markers, surplus actions) and trains on the new tokens of that.
//     Here the tokens stay as sampled; the cleaned text only decides which actions are executed.
//   - A warning after an unreadable reply is part of the episode in training too, since the policy saw it.
//   - The loss mask holds neither the assistant header nor the template's closing of a turn nor the forced <think>.
//   - An episode that would become too long ends ("length"); no earlier turn is removed.
//   - The format penalty also counts when rewards are placed per turn.
//   - An episode whose environment panics, hangs or returns an error is played again, then left out (failures.go).
package rollout
