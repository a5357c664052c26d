package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gyre/envs"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/model/chat"
)

// DemonstrationPlan says what an expert is to show.
type DemonstrationPlan struct {
	Envs     []config.Env // taken in turn, one level each; groups and group sizes do not matter
	Seed     int64        // of the first level tried; levels the expert cannot begin to solve are passed over
	Episodes int
	Holdout  Holdout
	// Noise is the probability of a turn that executes one random legal action instead of the expert's. Such a reply is
	// part of the episode but not of its mask: the policy sees mistakes and learns how to go on, not how to make them.
	Noise float64
	// Mistakes is the probability of a turn of random legal actions that the policy does learn, as many as the expert
	// would take: the demonstrations of a teacher that errs, which practice can surpass.
	Mistakes float64
	// Progress, if not nil, is called with the number of demonstrations collected so far.
	Progress func(finished int)
}

// Demonstrations plays with the environments' own solvers in place of a policy. The episodes have exactly the tokens
// that Play would have made of the same replies; a reply is the shortest text for its actions (with an empty think
// block if one is asked for) and the token that ends an assistant's turn. Log-probs are unknown.
func (p *Player) Demonstrations(ctx context.Context, plan DemonstrationPlan) ([]*episode.Episode, error) {
	eos, err := p.eos()
	if err != nil {
		return nil, err
	}
	kinds := make([]*kind, len(plan.Envs))
	for i, source := range plan.Envs {
		if kinds[i], err = p.kind(source); err != nil {
			return nil, err
		}
	}
	teacher := expert{eos: eos, noise: plan.Noise, mistakes: plan.Mistakes}
	var shown []*episode.Episode
	var stats Stats
	for tried := 0; len(shown) < plan.Episodes; {
		missing := plan.Episodes - len(shown)
		if tried > 20*plan.Episodes+100 {
			why := "the expert seldom finds a solution"
			if failures := stats.Warnings(); failures != nil {
				why = strings.Join(failures, "; ")
			}
			return nil, fmt.Errorf("only %d of %d demonstrations after %d levels: %s", len(shown), plan.Episodes,
				tried, why)
		}
		runners := make([]*runner, missing)
		for i := range runners {
			runners[i] = &runner{player: p, kind: kinds[(tried+i)%len(kinds)],
				slot: slot{seed: plan.Seed + int64(tried+i), holdout: plan.Holdout}}
		}
		tried += missing
		if err := (&round{player: p, runners: runners}).play(ctx, runners, teacher.show); err != nil {
			return nil, err
		}
		for _, r := range runners { // in the order of seeds, whoever was ready first
			stats.note(r)
			if r.failed() || !slices.Contains(r.transcript.mask, true) {
				continue
			}
			r.index, r.group = len(shown), len(shown)
			e := r.episode(0)
			e.Logprob = nil
			shown = append(shown, e)
		}
		if plan.Progress != nil {
			plan.Progress(len(shown))
		}
	}
	return shown, nil
}

// expert writes the replies of a solver.
type expert struct {
	eos             int32
	noise, mistakes float64
}

var errNoExpert = errors.New("the environment has no expert to learn from")

func (x expert) show(ctx context.Context, r *runner) error {
	if err := r.open(ctx); err != nil {
		return err
	}
	for !r.over {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		actions, trained, err := x.choose(ctx, r)
		if errors.Is(err, errNoExpert) {
			return fmt.Errorf("%s: %w", r.source.Tag, err)
		}
		if err != nil {
			r.finish(r.game.stop)
			return ctx.Err()
		}
		if len(actions) == 0 { // no way to success from here: what was shown before stays good
			r.finish("") // none of the reasons for which a policy's episode ends
			return nil
		}
		reply, err := x.write(ctx, r, actions)
		if err != nil {
			return fmt.Errorf("%s: %w", r, err)
		}
		if err := r.answer(ctx, reply, nil, trained); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// choose gives the next turn's actions and whether they are the expert's.
func (x expert) choose(ctx context.Context, r *runner) ([]string, bool, error) {
	rng := envs.Rand("demonstration", int64(r.player.seed), r.seed, int64(len(r.turns)))
	if legal := r.game.rules.actions; len(legal) > 0 && rng.Float64() < x.noise {
		return []string{legal[rng.IntN(len(legal))]}, false, nil
	}
	actions, err := r.game.solve(ctx)
	actions = actions[:min(len(actions), r.source.MaxActionsPerTurn, r.game.actionsLeft)]
	if legal := r.game.rules.actions; len(legal) > 0 && x.mistakes > 0 && rng.Float64() < x.mistakes {
		actions = slices.Clone(actions)
		for i := range actions {
			actions[i] = legal[rng.IntN(len(legal))]
		}
	}
	return actions, true, err
}

// write makes the reply's tokens and checks that they are read as they are meant.
func (x expert) write(ctx context.Context, r *runner, actions []string) ([]int32, error) {
	p, format := r.player, r.prompts.format
	encode, text, hint := p.tokenizer.EncodeMarkup, "", ""
	switch {
	case r.game.start.ReadReply != nil: // in the environment's own words
		text = r.game.write(ctx, actions)
	case r.game.rules.plain: // the action is the reply
		text = actions[0]
		encode = p.tokenizer.EncodeOrdinary
	default:
		text = format.write(actions)
		hint = fmt.Sprintf(": does an action contain rollout.action_separator %q?", format.separator)
	}
	reply, err := encode(text)
	if err != nil {
		return nil, fmt.Errorf("the expert's reply %q: %w", text, err)
	}
	if read := r.read(ctx, r.transcript.prompt(), reply); r.game.stop == "" && !slices.Equal(read, actions) {
		return nil, fmt.Errorf("the expert's reply %q is read as %q, not as %q%s", text, read, actions, hint)
	}
	if slices.ContainsFunc(r.game.start.StopStrings, func(stop string) bool { return strings.HasSuffix(text, stop) }) {
		return reply, nil // sampling would end here, before the turn's last token
	}
	return append(reply, x.eos), nil
}

// endOfTurn finds the token with which an assistant ends its turn: the stop token that the chat template writes there,
// else the first stop token.
func (p *Player) endOfTurn() (int32, error) {
	conversation := p.tokenizer.NewConversation()
	message := []chat.Message{{Role: "user", Content: "."}}
	if _, err := conversation.Open(message, ""); err != nil {
		return 0, err
	}
	reply, err := p.tokenizer.EncodeOrdinary(".")
	if err != nil {
		return 0, err
	}
	spans, err := conversation.Continue(reply, message, "")
	if err != nil {
		return 0, err
	}
	if ids := tokens(spans); len(ids) > 0 && slices.Contains(p.stopIDs, ids[0]) {
		return ids[0], nil
	}
	return p.stopIDs[0], nil
}

// Frame is a moment of an episode as people see it.
type Frame struct {
	Actions []string // that led here; none at the start
	Reward  float64  // of these actions
	Board   string
}

// Replay plays the replies of an episode again and draws the state at the start and after every turn. It needs an
// environment whose episodes follow from the seed. source is the table that the episode was played from.
func (p *Player) Replay(ctx context.Context, source config.Env, e *episode.Episode) ([]Frame, error) {
	kind, err := p.kind(source)
	if err != nil {
		return nil, err
	}
	r := &runner{player: p, kind: kind, slot: slot{seed: e.Seed}}
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	defer r.leave()
	var frames []Frame
	show := func(actions []string, reward float64) error {
		if r.failed() {
			return fmt.Errorf("%s: %w", r, r.game.failure)
		}
		board, err := call(ctx, &r.game, func(_ context.Context, env envs.Env) (string, error) {
			return envs.Board(env), nil
		})
		frames = append(frames, Frame{Actions: actions, Reward: reward, Board: board})
		return err
	}
	if err := show(nil, 0); err != nil {
		return nil, err
	}
	for _, t := range e.Turns {
		out := r.game.play(ctx, r.read(ctx, e.IDs[:t.Reply], e.IDs[t.Reply:t.End]))
		if err := show(out.actions, out.reward); err != nil {
			return nil, err
		}
	}
	return frames, nil
}
