// Package deepcoder asks for programs and runs them against hidden tests, in the form of the DeepCoder data set.
package deepcoder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"gyre/envs"
	"gyre/envs/sandbox"
	"gyre/internal/answer"
)

// options are the settings of the environment.
type options struct {
	Problems string `option:"problems" doc:"file of problems with their tests, chosen by the seed; none: a few elementary ones"`
	Attempts int    `option:"attempts,max_steps" range:"[1,)" doc:"answers per episode; max_actions must allow them"`
	sandbox.Config
}

func init() {
	tag := envs.Native("deepcoder", options{Attempts: 1, Config: sandbox.Defaults}, newGame)
	envs.Register(tag("DeepCoder", "write a Python program that passes hidden tests", 1, 8000, nil))
}

// game is the environment; it implements envs.Env and envs.Solver.
type game struct {
	envs.Episode
	options  *options
	box      *sandbox.Sandbox
	problems []problem
	problem  problem
	answers  int
	outcome  string // of the latest answer
}

func newGame(o *options) (*game, error) {
	g := &game{options: o}
	var err, noBox error
	g.problems, err = envs.ReadRows("problems", o.Problems, elementary, "elementary.jsonl", newProblem)
	g.box, noBox = sandbox.Shared(context.Background(), o.Config)
	return g, errors.Join(err, noBox)
}

func (g *game) Reset(_ context.Context, seed int64, _ int) (envs.Start, error) {
	g.problem = envs.At(g.problems, seed)
	g.answers, g.outcome = 0, ""
	task := "Write a program that reads standard input and prints the result; it is run on hidden inputs."
	if g.problem.tests[0].call.Function != "" {
		task = "Define the function that the task names; it is called with hidden arguments and must return the result."
	}
	start := g.Begin(fmt.Sprintf("You solve a programming task in Python 3. %s Each test may take %d s. Files, "+
		"processes and the network are closed to it. Answer with the complete program.", task, g.options.Seconds), nil)
	start.ReadReply = readReply
	return start, nil
}

func (g *game) Observe() envs.Observation {
	return envs.Observation{Text: cmp.Or(g.outcome, g.problem.text)}
}

// Step runs a program. The reward is the share of tests that it passes.
func (g *game) Step(ctx context.Context, action string) (envs.Result, error) {
	program := unfence(action)
	if _, err := g.Take(action); err != nil || strings.TrimSpace(program) == "" {
		return envs.Result{}, err
	}
	passed, failure, err := judge(ctx, g.box, program, g.problem.tests)
	if err != nil {
		return envs.Result{}, err
	}
	g.answers++
	share := float64(passed) / float64(len(g.problem.tests))
	r := envs.Result{Reward: share, Valid: true, Effective: true, Success: failure == ""}
	r.Done = r.Success || g.answers >= g.options.Attempts
	r.Components = []envs.Component{{Name: "tests", Value: share}}
	r.Info = map[string]float64{"tests_passed": share}
	for _, status := range []sandbox.Status{sandbox.Timeout, sandbox.Forbidden} {
		r.Info["program_"+string(status)] = envs.Indicator(failure == status)
	}
	g.outcome = fmt.Sprintf("The program passes %d of %d tests.", passed, len(g.problem.tests))
	if failure != "" {
		g.outcome += fmt.Sprintf(" The first that it fails ended with: %s.", failure)
	}
	return g.End(r)
}

var fence = regexp.MustCompile("(?s)```[a-zA-Z0-9]*[ \t]*\n(.*?)```")

// readReply takes the answer block of a reply, else its last fenced block.
func readReply(reply string, limit int) []string {
	if limit < 1 {
		return nil
	}
	reply = answer.AfterThought(reply)
	if program, found := answer.Block(reply); found {
		return []string{strings.Trim(program, "\n")}
	}
	if fence.MatchString(reply) {
		return []string{unfence(reply)}
	}
	return nil
}

// unfence takes the last fenced block of a program, or the whole.
func unfence(program string) string {
	if blocks := fence.FindAllStringSubmatch(program, -1); len(blocks) > 0 {
		return blocks[len(blocks)-1][1]
	}
	return program
}

// Solve shows the solution that the problem comes with.
func (g *game) Solve() ([]string, bool) {
	if g.problem.solution == "" {
		return nil, false
	}
	return []string{strings.Trim(g.problem.solution, "\n")}, true
}
