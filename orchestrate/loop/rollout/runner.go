package rollout

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"gyre/envs"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/run/spans"
)

// kind is what the episodes of one source share.
type kind struct {
	source  config.Env // with its defaults filled in
	spec    envs.Spec
	prompts prompts
	pool    *instances
}

// slot is where an episode stands in its batch.
type slot struct {
	index   int
	group   int
	member  int
	seed    int64 // of the environment
	holdout Holdout
}

// runner plays one episode. The sampling loop and the workers hand it to each other; only one of them touches it at a
// time.
type runner struct {
	player *Player
	*kind
	slot

	round   *round
	attempt int   // 2: the second
	asked   bool  // the first prompt has been there
	ended   bool  // the sampling loop knows that the episode is over
	entry   entry // what a run that is repeated says of the episode
	// what belongs to the sampling loop, whoever plays
	draft    drawn         // the beginning of a reply that goes on
	replies  []drawn       // that are complete
	versions []episode.Run // of the weights that drew the tokens
	mixed    [][2]int      // tokens drawn with keys and values of older weights: from, to
	kept     bool          // the sampler has the draft's keys and values
	older    bool          // the reply goes on from those of older weights
	// asking and answered count the tokens of prompts and of their complete replies, whoever has drawn them: the
	// sampler, this run before it was resumed, or an agent outside.
	asking, answered int

	game       game
	pending    view // of the turn whose reply is awaited
	transcript transcript
	turns      []turn // that lie behind
	first      int    // of turns, that the policy still sees
	squeezed   int    // turns that were forgotten only because the rest would not have fitted
	over       bool   // the episode has ended, and its environment is given back
	stop       string
	traced     spans.Episode
	closing    error // what went wrong in closing the environment, which does not concern the episode
}

// turn is a turn that lies behind.
type turn struct {
	view    view
	reply   []int32 // as it stands in the episode
	text    string  // what it said, opened by the prefix
	actions []string
	reward  float64
}

// runners lays out the episodes of a plan: group after group, member after member.
func (p *Player) runners(plan Plan) ([]*runner, error) {
	var all []*runner
	group := 0
	for _, source := range plan.Sources {
		kind, err := p.kind(source)
		if err != nil {
			return nil, err
		}
		for range source.Groups {
			for member := range plan.size(group, source) {
				all = append(all, &runner{player: p, kind: kind,
					slot: slot{len(all), group, member, plan.EnvSeed + int64(group), plan.Holdout}})
			}
			group++
		}
	}
	return all, nil
}

// kind finds a source's environment and wording, fills the source's defaults, and makes the first instance, which tries
// its options.
func (p *Player) kind(source config.Env) (*kind, error) {
	spec, err := envs.Lookup(source.Tag)
	if err != nil {
		return nil, err
	}
	spec.CountTokens = chat.CountTokens
	source.MaxActions = cmp.Or(source.MaxActions, spec.MaxActions)
	key := fmt.Sprintf("%s %#v", source.Tag, source.Options)
	if p.pools[key] == nil {
		if p.pools[key], err = newInstances(spec, source.Options, p.components); err != nil {
			delete(p.pools, key)
			return nil, err
		}
	}
	return &kind{source, spec, newPrompts(p.rollout.For(source)), p.pools[key]}, nil
}

// begin takes an environment. It tells whether there is one.
func (r *runner) begin() bool {
	rollout := r.player.rollout
	r.game = game{
		tag: r.source.Tag, limit: seconds(rollout.EnvTimeout), penalty: rollout.FormatPenalty,
		actionsLeft: r.source.MaxActions,
		weights:     r.player.weights, totals: map[string]float64{}, finals: map[string]float64{},
		rules: rules{maxActions: r.source.MaxActions, maxActionsPerTurn: r.source.MaxActionsPerTurn,
			replyWords: r.spec.MaxReplyWords, plain: r.spec.PlainReplies},
	}
	env, err := r.pool.take()
	if err != nil {
		r.game.fail(err)
		r.finish(r.game.stop)
		return false
	}
	r.game.env = env
	return true
}

// open starts the environment and the conversation. Its errors, like answer's, end the whole run: they come from the
// configuration or the chat template. What the environment does wrong only ends the episode.
func (r *runner) open(ctx context.Context) error {
	r.traced = spans.Begin(ctx, r.source.Tag, r.seed, r.group, r.member)
	if !r.begin() {
		return nil
	}
	start, err := r.game.reset(ctx, r.seed, r.member, r.holdout)
	if err == nil {
		r.seed = start.seed
		if r.transcript.conversation, err = r.conversation(); err != nil { // for its tools
			r.game.fail(err)
		}
	}
	if err != nil {
		r.finish(r.game.stop)
		return nil
	}
	r.pending = view{turn: 1, state: start.state, actionsLeft: r.game.actionsLeft}
	ids, err := r.promptAfter(r.transcript.conversation, nil, r.pending)
	if err != nil {
		return fmt.Errorf("%s: first prompt: %w", r, err)
	}
	r.transcript.observe(ids)
	if !r.fits(len(r.transcript.ids)) {
		r.finish(episode.Length)
	}
	return nil
}

// fits says whether a turn can be played after a prompt of so many tokens: its reply may be as long as replies may
// be, and no reply is cut short by the sequence's end.
func (r *runner) fits(prompt int) bool { return prompt+r.maxTokens() <= r.player.rollout.MaxLength }

func (r *runner) maxTokens() int { return cmp.Or(r.source.MaxTokens, r.player.rollout.MaxTokens) }

// answer takes the reply of the pending turn: it executes what the reply says and, unless that ends the episode, adds
// the next turn's prompt.
func (r *runner) answer(ctx context.Context, reply []int32, logprobs []float32, trained bool) error {
	p := r.player
	ctx = r.traced.In(ctx)
	cut := p.cut(reply, r.maxTokens())
	r.game.take(ctx, envs.Reply{Tokens: len(reply), Truncated: cut})
	out := r.game.play(ctx, r.read(ctx, r.transcript.prompt(), reply))
	if p.rollout.Replies == repliesAction && !r.game.rules.plain {
		var err error
		if reply, err = p.bare(r.prompts.format, out.actions); err != nil {
			return fmt.Errorf("%s: the action in place of the reply: %w", r, err)
		}
		logprobs = nil
	}
	r.transcript.reply(reply, logprobs, trained, cut)
	p.weights.credit(&r.transcript, out, p.lengths(reply))
	r.turns = append(r.turns, turn{view: r.pending, reply: reply, text: r.prefix() + p.Text(reply),
		actions: out.actions, reward: out.reward})
	switch {
	case r.game.stop != "":
		r.conclude(ctx, r.game.stop, reply)
		return nil
	case len(r.turns) >= r.source.MaxTurns:
		r.conclude(ctx, episode.Turns, reply)
		return nil
	}
	state, err := call(ctx, &r.game, func(_ context.Context, env envs.Env) (envs.Observation, error) {
		state := env.Observe()
		return state, checkMessages(state, false)
	})
	if err != nil {
		r.finish(r.game.stop)
		return nil
	}
	r.pending = view{turn: len(r.turns) + 1, state: state, actionsLeft: r.game.actionsLeft, invalid: out.invalid,
		reward: out.reward}
	fits, err := r.prompt(r.pending)
	if err != nil {
		return fmt.Errorf("%s: prompt of turn %d: %w", r, r.pending.turn, err)
	}
	if !fits {
		r.conclude(ctx, episode.Length, reply) // without the prompt that nobody would answer
	}
	return nil
}

// conclude ends the episode after its last reply, which an environment that judges the end may reward.
func (r *runner) conclude(ctx context.Context, stop string, reply []int32) {
	out, judged := r.game.conclude(ctx)
	if judged {
		r.player.weights.credit(&r.transcript, out, r.player.lengths(reply))
		r.turns[len(r.turns)-1].reward += out.reward
	}
	if judged || r.failed() {
		stop = r.game.stop
	}
	r.finish(stop)
}

// prefix opens every reply.
func (r *runner) prefix() string {
	if r.game.rules.plain {
		return ""
	}
	return r.prompts.format.prefix()
}

// read gives the actions that a reply asks for. A plain reply is one action, unless the environment reads it.
func (r *runner) read(ctx context.Context, prompt, reply []int32) []string {
	said := r.player.Text(reply)
	switch {
	case r.game.stop != "":
		return nil
	case r.game.start.ReadReply != nil:
		if len(r.game.tools) > 0 {
			said = inOneForm(said, r.player.tokenizer.ReadReply(prompt, reply, r.game.tools))
		}
		return r.game.read(ctx, said, r.source.MaxActionsPerTurn)
	case r.game.rules.plain:
		return []string{said}
	}
	return r.prompts.format.parse(said, r.source.MaxActionsPerTurn)
}

// count counts the pending prompt and its reply of so many tokens.
func (r *runner) count(reply int) {
	r.asking, r.answered = r.asking+r.transcript.length(), r.answered+reply
}

// failed tells whether the environment failed, and not the policy: nobody learns from the episode.
func (r *runner) failed() bool { return r.game.failure != nil }

func (r *runner) finish(stop string) {
	r.over, r.stop = true, stop
	r.traced.End(stop, stop == episode.Terminated && r.game.success, r.failed(), len(r.turns))
	r.leave()
}

// leave gives the environment back.
func (r *runner) leave() {
	r.closing = r.game.release(r.pool.give)
}

// episode is the finished product, before normalisation.
func (r *runner) episode(step int) *episode.Episode {
	t := &r.transcript
	e := &episode.Episode{
		Step: step, Group: r.group, Index: r.index, Tag: r.source.Tag, Label: r.game.start.Name,
		Gold: r.game.start.Answer, Seed: r.seed,
		IDs: slices.Clip(t.ids), Mask: t.mask, Logprob: t.logprob, Rewards: t.rewards, Turns: t.turns,
		Cut:        t.cut,
		Components: t.components, Contexts: t.contexts, Versions: r.versions, Mixed: r.mixed,
		Success: r.stop == episode.Terminated && r.game.success, Unjudged: r.game.unjudged, Stop: r.stop,
		Metrics: map[string]float64{},
	}
	if t.unknown {
		e.Logprob = nil
	}
	if limit := r.player.rollout.MaxLength; len(e.Turns) == 0 && len(e.IDs) > limit {
		// Only a first prompt that does not fit gets here. Nobody learns from it, so it need not be carried around.
		e.IDs, e.Mask, e.Logprob = e.IDs[:limit], e.Mask[:limit], e.Logprob[:min(limit, len(e.Logprob))]
	}
	if r.player.states && len(r.turns) == len(e.Turns) { // not those of an agent outside
		for _, turn := range r.turns {
			e.States = append(e.States, episode.StateOf(turn.view.state.String()))
		}
	}
	e.Rewards = append(e.Rewards, overlong(e, r.player.rollout)...)
	e.Score = e.Return()
	maps.Copy(e.Metrics, r.game.totals)
	for key := range e.Metrics {
		e.Metrics[key] /= float64(max(1, len(e.Turns)))
	}
	maps.Copy(e.Metrics, r.game.finals)
	if !e.Unjudged {
		e.Metrics["success"] = envs.Indicator(e.Success)
	}
	e.Metrics["num_actions"] = float64(r.game.numActions)
	e.Metrics["num_turns"] = float64(len(e.Turns))
	if mode := r.player.rollout.Context; mode == contextWindow || mode == contextSingle {
		e.Metrics["context_sequences"], e.Metrics["context_squeezed"] = float64(max(1, len(e.Contexts))),
			float64(r.squeezed)
	}
	e.Metrics["episodic_return"] = r.game.earned
	return e
}

// overlong is what an episode loses for a length that comes near the limit, on the last token that the policy sampled:
// min(0, (limit - zone - length)/zone) penalties. Of an episode of several contexts the longest counts.
func overlong(e *episode.Episode, c config.Rollout) []episode.Reward {
	length, last := 0, -1
	for t, sampled := range e.Mask {
		length = max(length, t+1-e.SequenceStart(t))
		if sampled {
			last = t
		}
	}
	if over := length - (c.MaxLength - c.OverlongTokens); c.OverlongTokens > 0 && over > 0 && last >= 0 {
		lost := float64(over) / float64(c.OverlongTokens) * c.OverlongPenalty
		return []episode.Reward{{Token: last, Value: -lost}}
	}
	return nil
}

// String names the episode in errors.
func (r *runner) String() string {
	return fmt.Sprintf("%s episode %d (group %d, member %d, seed %d)", r.source.Tag, r.index, r.group, r.member, r.seed)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
