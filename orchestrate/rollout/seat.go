package rollout

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"gyre/envs"
	"gyre/orchestrate/config"
	"gyre/orchestrate/episode"
)

// seat is one episode being played. It is handed back and forth between the sampling loop and a worker; only one of
// them touches it at a time.
type seat struct {
	player *Player
	source config.Env
	spec   envs.Spec
	index  int // of the episode in its batch
	group  int
	member int
	seed   int64 // of the environment

	game    game
	talk    transcript
	stop    string
	busy    time.Duration // spent on environment and text
	problem error         // of closing the environment, which does not concern the episode
}

// seats lays out the episodes of some sources: group after group, member after member.
func (p *Player) seats(sources []config.Env, envSeed int64) ([]*seat, error) {
	var all []*seat
	group := 0
	for _, source := range sources {
		spec, err := p.spec(&source)
		if err != nil {
			return nil, err
		}
		for range source.Groups {
			for member := range source.GroupSize {
				all = append(all, &seat{
					player: p, source: source, spec: spec, index: len(all), group: group, member: member,
					seed: envSeed + int64(group),
				})
			}
			group++
		}
	}
	return all, nil
}

// spec finds a source's environment, fills the source's defaults from it and makes the first instance, which tries its options.
func (p *Player) spec(source *config.Env) (envs.Spec, error) {
	spec, err := envs.Lookup(source.Tag)
	if err != nil {
		return spec, err
	}
	if source.MaxActions == 0 {
		source.MaxActions = spec.MaxActions
	}
	env, err := p.instances.take(spec, *source)
	if err != nil {
		return spec, err
	}
	p.instances.give(*source, env)
	return spec, nil
}

// open starts the environment and the conversation. Its errors, like answer's, end the whole run: they come from the
// configuration or the chat template. What the environment does wrong only ends the episode.
func (s *seat) open(ctx context.Context) error {
	env, err := s.player.instances.take(s.spec, s.source)
	if err != nil {
		return err
	}
	if setter, ok := env.(envs.MemberSetter); ok {
		setter.SetMember(s.member)
	}
	rollout := s.player.rollout
	s.game = game{
		env: env, limit: seconds(rollout.EnvTimeout), penalty: rollout.FormatPenalty, actionsLeft: s.source.MaxActions,
		weights: s.player.weights, totals: map[string]float64{},
		rules: rules{maxActions: s.source.MaxActions, maxActionsPerTurn: s.source.MaxActionsPerTurn,
			replyWords: s.spec.MaxReplyWords, plain: s.spec.PlainReplies},
	}
	// After a failed reset the state is empty: the episode still has a prompt, but nothing to learn from.
	state, failed := s.game.start(ctx, s.seed)
	s.talk.conversation = s.player.tokenizer.NewConversation()
	prompts := s.player.prompts
	spans, err := s.talk.conversation.Open(
		prompts.open(s.game.rules, view{turn: 1, state: state, actionsLeft: s.game.actionsLeft}), s.prefix())
	if err != nil {
		return fmt.Errorf("%s: first prompt: %w", s, err)
	}
	s.talk.observe(spans)
	switch {
	case failed != nil:
		s.finish(s.game.stop)
	case !s.player.fits(len(s.talk.ids)):
		s.finish(episode.Length)
	}
	return nil
}

// answer takes the reply of the pending turn: it executes what the reply says and, unless that ends the episode, adds
// the next turn's prompt.
func (s *seat) answer(ctx context.Context, reply []int32, logprobs []float32, trained bool) error {
	s.talk.reply(reply, logprobs, trained)
	if taker, ok := s.game.env.(envs.ReplyTaker); ok {
		taker.TakeReply(envs.Reply{Tokens: len(reply), Truncated: s.player.cut(reply)})
	}
	out := s.game.play(ctx, s.read(reply))
	s.player.weights.credit(&s.talk, out, s.player.lengths(reply))
	switch {
	case s.game.stop != "":
		s.finish(s.game.stop)
		return nil
	case len(s.talk.turns) >= s.source.MaxTurns:
		s.finish(episode.Turns)
		return nil
	}
	state, err := s.game.observe(ctx)
	if err != nil {
		s.finish(s.game.stop)
		return nil
	}
	next := view{turn: len(s.talk.turns) + 1, state: state, actionsLeft: s.game.actionsLeft, invalid: out.invalid, reward: out.reward}
	prompts := s.player.prompts
	spans, err := s.talk.conversation.Continue(reply, prompts.next(s.game.rules, next), s.prefix())
	if err != nil {
		return fmt.Errorf("%s: prompt of turn %d: %w", s, next.turn, err)
	}
	if !s.player.fits(len(s.talk.ids) + length(spans)) {
		s.finish(episode.Length) // without the prompt that nobody would answer
		return nil
	}
	s.talk.observe(spans)
	return nil
}

// prefix opens every reply, read gives the actions that one asks for. A plain reply is one action.
func (s *seat) prefix() string {
	if s.spec.PlainReplies {
		return ""
	}
	return s.player.prompts.format.prefix()
}

func (s *seat) read(reply []int32) []string {
	if s.spec.PlainReplies {
		return []string{s.player.text(reply)}
	}
	return s.player.read(reply, s.source.MaxActionsPerTurn)
}

func (s *seat) finish(stop string) {
	s.stop = stop
	s.leave()
}

// leave gives the environment back.
func (s *seat) leave() {
	s.problem = s.game.release(func(env envs.Env) { s.player.instances.give(s.source, env) })
}

// episode is the finished product, before normalisation.
func (s *seat) episode(step int) *episode.Episode {
	e := &episode.Episode{
		Step: step, Group: s.group, Index: s.index, Tag: s.source.Tag, Label: s.game.label, Seed: s.seed,
		IDs: slices.Clip(s.talk.ids), Mask: s.talk.mask, Logprob: s.talk.logprob, Rewards: s.talk.rewards, Turns: s.talk.turns,
		Components: s.talk.components,
		Success:    s.stop == episode.Terminated && s.game.success, Stop: s.stop, Metrics: map[string]float64{},
	}
	if limit := s.player.rollout.MaxLength; len(e.Turns) == 0 && len(e.IDs) > limit {
		// Only a first prompt that does not fit gets here. Nobody learns from it, so it need not be carried around.
		e.IDs, e.Mask, e.Logprob = e.IDs[:limit], e.Mask[:limit], e.Logprob[:limit]
	}
	e.Score = e.Return()
	maps.Copy(e.Metrics, s.game.totals)
	for key := range e.Metrics {
		e.Metrics[key] /= float64(max(1, len(e.Turns)))
	}
	for name, shares := range e.Components {
		for _, share := range shares {
			e.Metrics["reward/"+name] += share.Value
		}
	}
	e.Metrics["success"] = indicator(e.Success)
	e.Metrics["num_actions"] = float64(s.game.numActions)
	e.Metrics["num_turns"] = float64(len(e.Turns))
	e.Metrics["episodic_return"] = s.game.earned
	return e
}

// String names the episode in errors.
func (s *seat) String() string {
	return fmt.Sprintf("%s episode %d (group %d, member %d, seed %d)", s.source.Tag, s.index, s.group, s.member, s.seed)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
