package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"

	"gyre/envs"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/run/spans"
)

// game is the environment side of one episode: it executes actions, adds up rewards and metrics, and notes how the
// episode ended.
type game struct {
	tag     string
	env     envs.Env // nil once given back, closed or abandoned
	limit   time.Duration
	penalty float64
	weights weighting

	start       envs.Start
	rules       rules
	tools       []chat.Tool
	legal       map[string]string // lower-cased name -> name; nil = any text is an action
	actionsLeft int
	numActions  int
	stop        string // why it ended, "" while it goes on
	success     bool
	unjudged    bool               // nobody knows what a success is
	failure     error              // what the environment failed with
	earned      float64            // sum of the environment's rewards, without penalties
	totals      map[string]float64 // sums over turns of each turn's info
	finals      map[string]float64 // what the last turn's info says under a name that begins with final_
}

// outcome is what one turn did.
type outcome struct {
	reward     float64 // of the environment, or the weighted sum of its components
	components []component
	actions    []string // that were executed
	penalty    float64
	invalid    bool // nothing in the reply could be executed
}

// call runs f on the environment within the limit. An error ends the game.
func call[T any](ctx context.Context, g *game, f func(context.Context, envs.Env) (T, error)) (T, error) {
	env := g.env
	value, err := guard(ctx, g.limit, func(ctx context.Context) (T, error) { return f(ctx, env) },
		func() { env.Close() })
	if err != nil {
		g.fail(err)
	}
	return value, err
}

// reset starts the episode of a seed, or of a successor of it that the division of states admits.
func (g *game) reset(ctx context.Context, seed int64, member int, holdout Holdout) (first, error) {
	f, err := call(ctx, g, func(ctx context.Context, env envs.Env) (first, error) {
		f, err := holdout.reset(ctx, env, seed, member)
		if err != nil {
			return first{}, err
		}
		return f, errors.Join(f.Start.Check(), checkMessages(f.state, true))
	})
	if err != nil {
		return first{seed: seed}, err
	}
	g.start = f.Start
	g.rules.plain = g.rules.plain || f.ReadReply != nil
	for _, tool := range f.Tools {
		offered := chat.Tool{Name: tool.Name, Description: tool.Description}
		if tool.Parameters != nil {
			offered.Parameters = tool.Parameters
		}
		g.tools = append(g.tools, offered)
	}
	g.rules.instruction, g.rules.actions = f.Instruction, f.Actions
	if f.Actions != nil {
		g.legal = make(map[string]string, len(f.Actions))
		for _, name := range f.Actions {
			g.legal[strings.ToLower(name)] = name
		}
	}
	return f, nil
}

// checkMessages refuses an observation in which the environment speaks as somebody else.
func checkMessages(o envs.Observation, first bool) error {
	for i, m := range o.Messages {
		switch {
		case m.Role == "user" || m.Role == "tool":
		case m.Role == "system" && first && i == 0:
		case m.Role == "assistant" && first && i < len(o.Messages)-1: // examples of what is wanted
		default:
			return fmt.Errorf("message %d of the observation has role %q: an environment speaks as user or tool, as "+
				"system in the first message of an episode, and as assistant before the last one of its first "+
				"observation", i, m.Role)
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
			break
		}
		out.actions = append(out.actions, action)
		g.numActions++
		g.actionsLeft--
		if g.add(&out, info, result); g.stop != "" {
			break
		}
	}
	if g.stop == "" && g.actionsLeft <= 0 {
		g.stop = episode.Actions
	}
	g.settle(out, info)
	return out
}

// add adds what the environment says of an action, or of the whole episode at its end.
func (g *game) add(out *outcome, info map[string]float64, result envs.Result) {
	reward, components := g.weights.apply(result)
	out.reward += reward
	out.components = append(out.components, components...)
	if err := envs.CheckReward(g.earned + out.reward); err != nil {
		g.fail(fmt.Errorf("action %q: the rewards of the episode add up to %w",
			strings.Join(out.actions[max(0, len(out.actions)-1):], ""), err))
		return
	}
	info["action_is_valid"] = envs.Indicator(result.Valid)
	info["action_is_effective"] = envs.Indicator(result.Effective)
	maps.Copy(info, result.Info)
	if result.Done {
		g.stop, g.success, g.unjudged = episode.Terminated, result.Success, result.Unjudged
	}
}

// settle notes what a turn, or the end of the episode, has earned.
func (g *game) settle(out outcome, info map[string]float64) {
	g.earned += out.reward
	if g.unjudged {
		var known bool
		g.success, known = g.weights.judge(g.earned)
		g.unjudged = !known
	}
	g.record(info, out.invalid)
}

// conclude asks an environment that judges the end of an episode for its result, where the policy may say no more.
func (g *game) conclude(ctx context.Context) (out outcome, judged bool) {
	finisher, ok := g.env.(envs.Finisher)
	if !ok || g.failure != nil || g.stop == episode.Terminated {
		return out, false
	}
	result, err := call(ctx, g, func(ctx context.Context, _ envs.Env) (envs.Result, error) {
		result, err := finisher.Finish(ctx)
		return result, errors.Join(err, result.Check())
	})
	if err == nil {
		info := map[string]float64{}
		g.add(&out, info, result)
		delete(info, "action_is_valid") // no action of the policy's
		delete(info, "action_is_effective")
		g.settle(out, info)
	}
	return out, err == nil
}

// record adds a turn's info to the metrics of the episode. Numbers that no metric can hold are left out.
func (g *game) record(info map[string]float64, invalid bool) {
	delete(info, "success") // the episode's own, known only at its end
	info["manager_invalid_action"] = envs.Indicator(invalid)
	for key, value := range info {
		switch {
		case !(math.Abs(value) <= envs.LargestReward):
		case strings.HasPrefix(key, "final_"):
			g.finals[key] = value
		default:
			g.totals[key] += value
		}
	}
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
	end := spans.Tool(ctx, g.tag, action)
	result, err := call(ctx, g, func(ctx context.Context, env envs.Env) (envs.Result, error) {
		result, err := env.Step(ctx, action)
		if err == nil {
			err = result.Check()
		}
		if err != nil {
			return result, fmt.Errorf("action %q: %w", action, err)
		}
		return result, nil
	})
	end(err)
	return result, err
}

// ask calls what an environment offers beside its interface.
func ask[T any](ctx context.Context, g *game, f func() T) (T, error) {
	return call(ctx, g, func(context.Context, envs.Env) (T, error) { return f(), nil })
}

// take tells the environment what it may want to know of a reply.
func (g *game) take(ctx context.Context, reply envs.Reply) {
	if g.start.OnReply != nil {
		ask(ctx, g, func() (none struct{}) {
			g.start.OnReply(reply)
			return none
		})
	}
}

// read asks the environment what a reply says.
func (g *game) read(ctx context.Context, reply string, limit int) []string {
	actions, err := ask(ctx, g, func() []string { return g.start.ReadReply(reply, limit) })
	if err != nil {
		return nil
	}
	return actions[:min(limit, len(actions))]
}

// write asks the environment how a reply says some actions.
func (g *game) write(ctx context.Context, actions []string) string {
	if g.start.WriteReply == nil {
		return "<answer>" + strings.Join(actions, "\n") + "</answer>"
	}
	text, _ := ask(ctx, g, func() string { return g.start.WriteReply(actions) })
	return text
}

// solve asks the environment's expert for the actions from here; none means that there is no way.
func (g *game) solve(ctx context.Context) ([]string, error) {
	solver, ok := g.env.(envs.Solver)
	if !ok {
		return nil, errNoExpert
	}
	return ask(ctx, g, func() []string {
		if actions, ok := solver.Solve(); ok {
			return actions
		}
		return nil
	})
}

// fail ends the game. An abandoned call still uses the environment, so that nothing here does any more.
func (g *game) fail(err error) {
	g.stop, g.failure = episode.Error, err
	if call := (*callError)(nil); errors.As(err, &call) {
		g.stop = call.stop
		if call.abandoned {
			g.env = nil
		}
	}
}

// release gives the environment up: back to those that wait for another episode, or, if it has failed, for good. A
// Close that hangs or panics is reported; the episode is complete without it.
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
