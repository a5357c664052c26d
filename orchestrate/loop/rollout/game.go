package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"gyre/envs"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/model/chat"
)

// game is the environment side of one episode: it executes actions and keeps the books.
type game struct {
	env     envs.Env // nil once given back, closed or abandoned
	limit   time.Duration
	penalty float64
	weights weighting

	rules       rules
	start       envs.Start
	tools       []chat.Tool
	legal       map[string]string // lower-cased name -> name; nil = any text is an action
	actionsLeft int
	numActions  int
	stop        string // why it ended, "" while it goes on
	success     bool
	failure     error              // what the environment failed with
	earned      float64            // sum of the environment's rewards, without penalties
	totals      map[string]float64 // sums over turns of each turn's info
	finals      map[string]float64 // what the last turn's info says under a name that begins with final_
}

// outcome is what one turn did.
type outcome struct {
	reward  float64          // of the environment, or the weighted parts of it
	parts   []envs.Component // unweighted
	actions []string         // that were executed
	penalty float64
	invalid bool // nothing in the reply could be executed
}

// reset resets the environment, to the seed or a successor of it that the division of states admits, and reads its rules. An error here is about the environment's own code, see fail.
func (g *game) reset(ctx context.Context, seed int64, member int, holdout Holdout) (taken int64, state envs.Observation, err error) {
	type first struct {
		envs.Start
		seed  int64
		state envs.Observation
	}
	env := g.env
	f, err := guard(ctx, g.limit, func(ctx context.Context) (first, error) {
		taken, start, state, err := holdout.reset(ctx, env, seed, member)
		if err != nil {
			return first{}, err
		}
		return first{start, taken, state}, errors.Join(start.Check(), checkMessages(state, true))
	}, func() { env.Close() })
	if err != nil {
		g.fail(err)
		return seed, envs.Observation{}, err
	}
	g.start = f.Start
	g.rules.plain = g.rules.plain || f.ReadReply != nil
	for _, tool := range f.Tools {
		g.tools = append(g.tools, chat.Tool{Name: tool.Name, Description: tool.Description, Parameters: tool.Parameters})
	}
	g.rules.instruction, g.rules.actions = f.Instruction, f.Actions
	if f.Actions != nil {
		g.legal = make(map[string]string, len(f.Actions))
		for _, name := range f.Actions {
			g.legal[strings.ToLower(name)] = name
		}
	}
	return f.seed, f.state, nil
}

// checkMessages refuses an observation in which the environment speaks as somebody else.
func checkMessages(o envs.Observation, first bool) error {
	for i, m := range o.Messages {
		switch {
		case m.Role == "user" || m.Role == "tool":
		case m.Role == "system" && first && i == 0:
		default:
			return fmt.Errorf("message %d of the observation has role %q: an environment speaks as user or tool, and as system in the "+
				"first message of an episode", i, m.Role)
		}
	}
	if err := chat.CheckNames(messagesOf(o)); err != nil {
		return fmt.Errorf("the observation's %w", err)
	}
	return nil
}

// play executes the actions of one reply, as far as they are legal and within the budget.
func (g *game) play(ctx context.Context, parsed []string) outcome {
	actions := g.resolve(parsed)
	out := outcome{invalid: len(actions) == 0}
	if g.stop != "" { // the reply could not even be read
		return out
	}
	if out.invalid || len(actions) != len(parsed) {
		out.penalty = g.penalty
	}
	info := map[string]float64{}
	for _, action := range actions[:min(len(actions), g.actionsLeft)] {
		result, err := g.step(ctx, action)
		if err != nil {
			g.fail(err)
			break
		}
		out.actions = append(out.actions, action)
		g.numActions++
		g.actionsLeft--
		out.reward += g.weights.earned(result)
		out.parts = append(out.parts, result.Components...)
		info["action_is_valid"], info["action_is_effective"] = indicator(result.Valid), indicator(result.Effective)
		maps.Copy(info, result.Info)
		if result.Done {
			g.stop, g.success = episode.Terminated, result.Success
			break
		}
	}
	if g.stop == "" && g.actionsLeft <= 0 {
		g.stop = episode.Actions
	}
	g.earned += out.reward
	delete(info, "success") // the episode's own, known only at its end
	info["manager_invalid_action"] = indicator(out.invalid)
	for key, value := range info {
		switch {
		case !finite(value):
		case strings.HasPrefix(key, "final_"):
			g.finals[key] = value
		default:
			g.totals[key] += value
		}
	}
	return out
}

// resolve finds the environment's spelling of each action and drops what it does not know.
func (g *game) resolve(parsed []string) []string {
	if g.legal == nil {
		return parsed
	}
	var actions []string
	for _, name := range parsed {
		if action, ok := g.legal[strings.ToLower(name)]; ok {
			actions = append(actions, action)
		}
	}
	return actions
}

func (g *game) step(ctx context.Context, action string) (envs.Result, error) {
	env := g.env
	return guard(ctx, g.limit, func(ctx context.Context) (envs.Result, error) {
		result, err := env.Step(ctx, action)
		if err != nil {
			err = fmt.Errorf("action %q: %w", action, err)
		} else if err = result.Check(); err != nil {
			err = fmt.Errorf("action %q: %w", action, err)
		}
		return result, err
	}, func() { env.Close() })
}

// take tells the environment what it may want to know of a reply.
func (g *game) take(ctx context.Context, reply envs.Reply) {
	env := g.env
	if g.start.OnReply == nil {
		return
	}
	if _, err := guard(ctx, g.limit, func(context.Context) (struct{}, error) {
		g.start.OnReply(reply)
		return struct{}{}, nil
	}, func() { env.Close() }); err != nil {
		g.fail(err)
	}
}

// read asks the environment what a reply says.
func (g *game) read(ctx context.Context, reply string, limit int) []string {
	env := g.env
	actions, err := guard(ctx, g.limit, func(context.Context) ([]string, error) {
		return g.start.ReadReply(reply, limit), nil
	}, func() { env.Close() })
	if err != nil {
		g.fail(err)
		return nil
	}
	return actions[:min(limit, len(actions))]
}

// write asks the environment how a reply says some actions.
func (g *game) write(ctx context.Context, actions []string) string {
	env := g.env
	if g.start.WriteReply == nil {
		return "<answer>" + strings.Join(actions, "\n") + "</answer>"
	}
	text, err := guard(ctx, g.limit, func(context.Context) (string, error) { return g.start.WriteReply(actions), nil }, func() { env.Close() })
	if err != nil {
		g.fail(err)
	}
	return text
}

// observe renders the state.
func (g *game) observe(ctx context.Context) (envs.Observation, error) {
	env := g.env
	state, err := guard(ctx, g.limit, func(context.Context) (envs.Observation, error) {
		state := env.Observe()
		return state, checkMessages(state, false)
	}, func() { env.Close() })
	if err != nil {
		g.fail(err)
	}
	return state, err
}

// solve asks the environment's expert for the actions from here.
func (g *game) solve(ctx context.Context) ([]string, error) {
	env := g.env
	solver, ok := env.(envs.Solver)
	if !ok {
		return nil, errNoExpert
	}
	return guard(ctx, g.limit, func(context.Context) ([]string, error) {
		actions, ok := solver.Solve()
		if !ok {
			return nil, nil
		}
		return actions, nil
	}, func() { env.Close() })
}

// fail ends the game. What runs in an abandoned call still uses the environment, so nothing here does any more.
func (g *game) fail(err error) {
	g.stop, g.failure = stopOf(err), err
	if errors.Is(err, errTimeout) || errors.Is(err, errInterrupted) {
		g.env = nil
	}
}

// release gives the environment up: back to those that wait for another episode, or, if it has failed, for good. A Close that hangs or
// panics is reported; the episode is complete without it.
func (g *game) release(give func(envs.Env)) error {
	env := g.env
	if env == nil {
		return nil
	}
	g.env = nil
	if g.failure != nil {
		return closeEnv(env, g.limit)
	}
	give(env)
	return nil
}

func indicator(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
