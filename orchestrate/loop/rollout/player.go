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
//   - An episode whose environment panics, hangs or returns an error is played again, then left out (stats.go).
package rollout

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync"

	"gyre/envs"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/model/chat/replies"
	"gyre/torch"
)

// Player plays episodes with one policy and owns the environments that it keeps between them. It is used by one
// goroutine at a time.
type Player struct {
	tokenizer  *chat.Tokenizer
	source     generation.Source // without an engine in a player that only demonstrates
	rollout    config.Rollout
	seed       uint64
	stopIDs    []int32
	weights    weighting
	failures   failureRate           // of the training steps last played
	components []envs.ComponentSpec  // that the experiment asks for
	pools      map[string]*instances // by tag and options
	eos        func() (int32, error) // the token that ends an assistant's turn
	states     bool                  // episodes say in which state each turn began
	named      bool                  // the names of weights were seen in episodes
	gateway    Gateway               // for agents outside; nil until one plays
	listen     string                // where it does
	driver     *generation.Driver    // that it samples with
	world      *ranks.World          // whose ranks divide the groups of a plan
	together   int                   // neighbouring ranks that are one sampler (tensor parallel)
}

// NewPlayer prepares to play by the experiment's [rollout] and [[rewards]] tables with a tokenizer that has a template
// and a token to end replies with. seed is the run's; the engine may be nil for a player that only demonstrates.
func NewPlayer(tokenizer *chat.Tokenizer, engine generation.Engine, rollout config.Rollout, rewards []config.Reward,
	seed uint64) *Player {
	p := &Player{tokenizer: tokenizer, source: generation.New(engine, tokenizer), rollout: rollout, seed: seed,
		stopIDs: tokenizer.StopIDs(),
		weights: newWeighting(rewards), components: componentSpecs(rewards), pools: map[string]*instances{},
		world: ranks.Alone(), together: 1}
	p.eos = sync.OnceValues(p.endOfTurn)
	return p
}

// JudgeFrom sets the reward from which on a reply is a success where the environment does not tell
// (validation.success_at); 0 leaves the largest that [[rewards]] can earn.
func (p *Player) JudgeFrom(reward float64) {
	if reward != 0 {
		p.weights.successAt = reward
	}
}

// KeepStates has episodes say in which state of the environment each turn began.
func (p *Player) KeepStates(keep bool) { p.states = keep }

// Ask lets another source than the engine answer from now on.
func (p *Player) Ask(source generation.Source) { p.source = source }

// Divide lets the ranks of a world, each of which has such a player, play the groups of a plan in turn from now on. So
// many neighbouring ranks are one sampler (tensor parallel), of which the first plays.
func (p *Player) Divide(world *ranks.World, together int) { p.world, p.together = world, together }

// Close closes the environments that the player keeps between episodes, and the gateway.
func (p *Player) Close() error {
	var problems []error
	if p.gateway != nil {
		problems = append(problems, p.gateway.Close())
	}
	for _, pool := range p.pools {
		problems = append(problems, pool.close(seconds(p.rollout.EnvTimeout)))
	}
	return errors.Join(problems...)
}

// Text is what a sampled reply says.
func (p *Player) Text(reply []int32) string {
	if n := len(reply); n > 0 && slices.Contains(p.stopIDs, reply[n-1]) {
		reply = reply[:n-1]
	}
	return p.tokenizer.Decode(reply, false)
}

// inOneForm is what environments with tools read of a reply in any family's form: what is said without what was
// thought, then its calls as Hermes writes them. A reply without thinking and calls stays as it is.
func inOneForm(reply string, parts []replies.Part) string {
	var read replies.Reply
	if read.Add(parts); read.Thinking == "" && read.Calls == nil {
		return reply
	}
	for _, call := range read.Calls {
		read.Content += "\n<tool_call>" + call.String() + "</tool_call>"
	}
	return read.Content
}

// cut tells whether a sampled reply ended because it was as long as replies may be.
func (p *Player) cut(reply []int32, most int) bool {
	return len(reply) >= most && !slices.Contains(p.stopIDs, reply[len(reply)-1])
}

// repliesAction is the value of config.Rollout.Replies that puts the action in a reply's place.
const repliesAction = "action"

// bare makes the reply that stands for actions: the answer block alone, "none" where nothing was executed.
func (p *Player) bare(f replyFormat, actions []string) ([]int32, error) {
	text := "none"
	if len(actions) > 0 {
		text = strings.Join(actions, " "+f.separator+" ")
	}
	block := "<answer>" + text + "</answer>"
	reply, err := p.tokenizer.EncodeOrdinary(strings.TrimPrefix(block, f.prefix()))
	if err != nil {
		return nil, err
	}
	eos, err := p.eos()
	return append(reply, eos), err
}

// LastReply gives the text of an episode's last reply.
func (p *Player) LastReply(e *episode.Episode) string {
	if len(e.Turns) == 0 {
		return ""
	}
	turn := e.Turns[len(e.Turns)-1]
	return p.Text(e.IDs[turn.Reply:turn.End])
}

// TokenTexts gives the text of each token by itself.
func (p *Player) TokenTexts(ids []int32) []string {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = strings.ToValidUTF8(string(p.tokenizer.TokenBytes(id)), "\uFFFD")
	}
	return list
}

// lengths are the bytes of text that each token of a reply stands for.
func (p *Player) lengths(reply []int32) []int {
	list := make([]int, len(reply))
	for i, id := range reply {
		if i < len(reply)-1 || !slices.Contains(p.stopIDs, id) {
			list[i] = len(p.tokenizer.TokenBytes(id))
		}
	}
	return list
}

// request asks for the reply of an episode's pending turn, or for what its draft lacks. Its id is the
// episode's number plus one, behind what tells the round from others on the same floor: an episode has one request at a
// time.
func (p *Player) request(r *runner) generation.Request {
	sampling := r.round.plan.Sampling
	sampling.MaxTokens, sampling.Seed = r.maxTokens(), p.drawSeed(r.round.plan, r.index, len(r.turns))
	return generation.Request{Request: torch.Request{
		ID:     r.round.requests + uint64(r.index) + 1,
		Prompt: slices.Concat(r.transcript.prompt(), r.draft.IDs), Drawn: len(r.draft.IDs), Sampling: sampling,
		StopIDs: p.stopIDs, StopStrings: r.game.start.StopStrings,
	}, Chat: r.chat}
}

// drawSeed keys the draws of a turn of an episode.
func (p *Player) drawSeed(plan Plan, episode, turn int) uint64 {
	batch := cmp.Or(plan.Batch, plan.Step)
	return envs.Rand("reply/"+string(plan.Stream), int64(p.seed), int64(batch), int64(episode), int64(turn)).Uint64()
}
