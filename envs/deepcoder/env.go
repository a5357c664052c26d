package deepcoder

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"gyre/envs"
	"gyre/envs/sandbox"
)

// options are the settings of the environment.
type options struct {
	Problems  string `option:"problems" doc:"file of problems with their tests, chosen by the seed; none: a few elementary ones"`
	MaxTests  int    `option:"max_tests" range:"[0,)" doc:"tests run per answer, the first ones; 0: all"`
	Attempts  int    `option:"attempts,max_steps" range:"[1,)" doc:"answers per episode"`
	Seconds   int    `option:"time_limit" doc:"seconds of processor time per test"`
	MemoryMiB int    `option:"memory_mib" doc:"memory per test"`
	Isolation string `option:"isolation" doc:"full: programs are kept in; limits: for trusted programs"`
	Python    string `option:"python" doc:"interpreter that runs the programs"`
}

func init() {
	envs.Register(envs.Spec{
		Tag: "DeepCoder", Type: "deepcoder", Doc: "write a Python program that passes hidden tests", MaxActions: 1,
		MaxReplyWords: 8000,
		NewOptions: func() any {
			return &options{Attempts: 1, Seconds: 3, MemoryMiB: 512, Isolation: string(sandbox.Full), Python: "python3"}
		},
		New: func(o any) (envs.Env, error) { return newGame(o.(*options)) },
	})
}

// game is the environment; it implements envs.Env and envs.Solver.
type game struct {
	options  *options
	box      *sandbox.Sandbox
	problems []problem
	problem  problem
	answers  int
	outcome  string // of the latest answer
	running  bool
}

func newGame(o *options) (*game, error) {
	g := &game{options: o}
	var err, noBox error
	g.problems, err = readProblems(o.Problems)
	g.box, noBox = sandbox.Shared(context.Background(), sandbox.Config{
		Python: o.Python, Time: time.Duration(o.Seconds) * time.Second, Memory: int64(o.MemoryMiB) << 20,
		Isolation: sandbox.Isolation(o.Isolation),
	})
	if err := errors.Join(err, noBox); err != nil {
		return nil, err
	}
	return g, nil
}

func (g *game) Reset(_ context.Context, seed int64, _ int) (envs.Start, error) {
	n := int64(len(g.problems))
	g.problem = g.problems[(seed%n+n)%n]
	if most := g.options.MaxTests; most > 0 {
		g.problem.tests = g.problem.tests[:min(most, len(g.problem.tests))]
	}
	g.answers, g.outcome, g.running = 0, "", true
	return envs.Start{Instruction: g.instruction(), ReadReply: g.readReply}, nil
}

func (g *game) Observe() envs.Observation {
	if g.outcome != "" {
		return envs.Observation{Text: g.outcome}
	}
	return envs.Observation{Text: g.problem.text}
}

// Step runs a program. The reward is the share of tests that it passes.
func (g *game) Step(ctx context.Context, action string) (envs.Result, error) {
	if !g.running {
		return envs.Result{}, envs.ErrNotRunning
	}
	program := unfence(action)
	if strings.TrimSpace(program) == "" {
		return envs.Result{}, nil
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
		r.Info["program_"+string(status)] = 0
		if failure == string(status) {
			r.Info["program_"+string(status)] = 1
		}
	}
	g.outcome = fmt.Sprintf("The program passes %d of %d tests.", passed, len(g.problem.tests))
	if failure != "" {
		g.outcome += " The first that it fails ended with: " + map[string]string{"wrong": "a wrong result"}[failure]
		if failure != "wrong" {
			g.outcome += failure
		}
		g.outcome += "."
	}
	g.running = !r.Done
	return r, nil
}

var (
	answerBlock = regexp.MustCompile(`(?s)<answer>(.*?)</answer>`)
	fence       = regexp.MustCompile("(?s)```[a-zA-Z0-9]*[ \t]*\n(.*?)```")
)

// readReply takes the answer block of a reply, else its last fenced block; what is thought before does not count.
func (g *game) readReply(reply string, limit int) []string {
	if limit < 1 {
		return nil
	}
	if _, after, found := strings.Cut(reply, "</think>"); found {
		reply = after
	}
	if match := answerBlock.FindStringSubmatch(reply); match != nil {
		return []string{strings.Trim(match[1], "\n")}
	}
	if before, _, closed := strings.Cut(reply, "</answer>"); closed { // the prompt has opened the block
		return []string{strings.Trim(before, "\n")}
	}
	if blocks := fence.FindAllStringSubmatch(reply, -1); len(blocks) > 0 {
		return []string{blocks[len(blocks)-1][1]}
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

func (g *game) instruction() string {
	text := "You solve a programming task in Python 3. "
	if g.problem.tests[0].function {
		text += "Define the function that the task names; it is called with hidden arguments and must return the " +
			"result. "
	} else {
		text += "Write a program that reads standard input and prints the result; it is run on hidden inputs. "
	}
	return text + fmt.Sprintf("Each test may take %d s. Files, processes and the network are closed to it. Answer "+
		"with the complete program.",
		g.options.Seconds)
}

// Solve shows the solution that the problem comes with.
func (g *game) Solve() ([]string, bool) {
	if g.problem.solution == "" {
		return nil, false
	}
	return []string{strings.Trim(g.problem.solution, "\n")}, true
}

func (g *game) Close() error {
	g.running = false
	return nil
}
