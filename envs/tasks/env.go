package tasks

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"gyre/envs"
	"gyre/envs/sandbox"
	"gyre/envs/tools"
	"gyre/internal/answer"
)

type options struct {
	Path      string   `option:"path" doc:"folder of a task, or of folders of tasks, in the order of names; empty: generated tasks"`
	Tasks     []string `option:"tasks" doc:"names of the tasks of path that are played; none: all"`
	Families  []string `option:"families" doc:"of generated tasks; none: all"`
	Network   bool     `option:"network" doc:"programs of a task reach what this machine reaches"`
	Commands  float64  `option:"command_timeout" range:"(0,100000]" doc:"seconds that a command may take"`
	MaxCalls  int      `option:"max_calls" range:"[1,100000]" doc:"calls of tools after which the tests judge"`
	Shown     int      `option:"max_output" range:"[10,1000000]" doc:"characters of an output that are shown"`
	MemoryMiB int      `option:"memory_mib" range:"[64,16777216]" doc:"address space of each process, where the task does not say"`
	DiskMiB   int      `option:"disk_mib" range:"[1,1048576]" doc:"memory for the files of an episode, where the task does not say"`
	Logs      string   `option:"logs" doc:"folder that keeps what each episode did and how its tests judged; empty: none"`
	Python    string   `option:"python" doc:"interpreter that keeps the sessions, and that their programs find"`
}

func init() {
	envs.Register(envs.Native("tasks", options{Commands: 20, MaxCalls: 10, Shown: 4000, MemoryMiB: 4096, DiskMiB: 256,
		Python: "python3"}, newGame)("tasks", "tasks in folders (Harbor, Terminal-Bench): a shell, a file tool and tests "+
		"that judge", 1000, 300, nil))
}

// slots bound how many sessions work at once: time limits are for one that has a processor.
var slots = make(chan struct{}, max(4, 2*runtime.NumCPU()))

// game is the environment; it implements envs.Env and envs.Solver.
type game struct {
	tools.Conversation
	options *options
	source  source
	python  string

	seed    int64
	member  int
	task    *Task
	session *sandbox.Session // from the first call on
	spent   time.Duration    // by the tools
	log     journal
	solved  bool // the expert has done its work
}

func newGame(o *options) (*game, error) {
	g := &game{options: o}
	var err error
	if g.source, err = newSource(o); err != nil {
		return nil, err
	}
	if g.python, err = envs.Shared(proven(o.Python), func() (string, error) { return prove(o.Python) }); err != nil {
		return nil, err
	}
	g.Offered = g.tools()
	return g, nil
}

type proven string // name of an interpreter

// prove finds the interpreter, and tries once that this machine can hold sessions: not in the middle of a run.
func prove(name string) (string, error) {
	ctx := context.Background()
	python, err := sandbox.Interpreter(ctx, name)
	if err != nil {
		return "", err
	}
	session, err := sandbox.Open(ctx, sandbox.SessionConfig{Python: python, Folder: "/app", DiskMiB: 1})
	if err == nil {
		session.Close()
	}
	return python, err
}

func (g *game) Reset(_ context.Context, seed int64, member int) (envs.Start, error) {
	g.end()
	task, err := g.source(seed)
	if err != nil {
		return envs.Start{}, err
	}
	g.seed, g.member, g.task, g.spent, g.solved = seed, member, task, 0, false
	g.log = journal{}
	start := g.Ask(task.Instruction)
	start.Name = task.Name
	start.Instruction = fmt.Sprintf("Do the task in a shell and its files. You may call the tool shell: "+
		"<tool_call>{\"name\": \"shell\", \"arguments\": {\"command\": \"…\"}}</tool_call>; it starts in %s, and its "+
		"folder and variables last. The tool file reads, writes and replaces: {\"name\": \"file\", \"arguments\": "+
		"{\"action\": \"read\", \"path\": \"…\"}}, with \"text\" to write, and \"old\" and \"text\" to replace. A reply "+
		"that calls a tool ends there; its result follows. A reply without a call ends the work, and tests judge it. "+
		"There are at most %d calls.", task.Folder, g.options.MaxCalls)
	start.ReadReply, start.WriteReply = readReply, writeReply
	return start, nil
}

// readReply gives the calls of a reply, or all of it, which then ends the work.
func readReply(reply string, limit int) []string {
	reply = strings.TrimSpace(answer.AfterThought(reply))
	if calls := tools.Calls(reply, limit); calls != nil || limit < 1 || reply == "" {
		return calls
	}
	return []string{reply}
}

func writeReply(actions []string) string { return strings.Join(actions, "\n") }

// Step carries out a call, or ends the work and lets the tests judge.
func (g *game) Step(ctx context.Context, action string) (envs.Result, error) {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return envs.Result{}, context.Cause(ctx)
	}
	r, isCall, err := g.Call(ctx, action)
	if err != nil || isCall && g.Calls() < g.options.MaxCalls && g.left() > 0 {
		return r, err
	}
	judged, err := g.judge(ctx)
	if err != nil {
		return judged, err
	}
	judged.Components = append(judged.Components, r.Components...)
	if isCall {
		judged.Info["tool_calls"] = 1
	}
	return judged, nil
}

// Finish lets the tests judge what an agent has left that may say no more.
func (g *game) Finish(ctx context.Context) (envs.Result, error) {
	if !g.Running() {
		return envs.Result{}, envs.ErrNotRunning
	}
	return g.judge(ctx)
}

// left is the time that the task still has for tools.
func (g *game) left() time.Duration { return g.task.Agent - g.spent }

// open starts the session of the episode, if there is none.
func (g *game) open(ctx context.Context) error {
	if g.session != nil {
		return nil
	}
	t := g.task
	config := sandbox.SessionConfig{Python: g.python, Folder: t.Folder, Files: t.Files, Env: t.Env,
		MemoryMiB: g.options.MemoryMiB, DiskMiB: g.options.DiskMiB, Network: g.options.Network && !t.Offline}
	if t.MemoryMiB > 0 {
		config.MemoryMiB = t.MemoryMiB
	}
	if t.DiskMiB > 0 {
		config.DiskMiB = t.DiskMiB
	}
	session, err := sandbox.Open(ctx, config)
	if err == nil {
		g.session = session
	}
	return err
}

// judge lets the tests judge what the session has left.
func (g *game) judge(ctx context.Context) (r envs.Result, err error) {
	if err := g.open(ctx); err != nil {
		return r, err
	}
	said, err := g.session.Test(ctx, g.task.Trial)
	g.end()
	if err != nil {
		return r, fmt.Errorf("the tests of task %s: %w", g.task.Name, err)
	}
	verdict, silent := g.task.judge(said)
	if said.End == sandbox.TimedOut {
		verdict, silent = outcome{}, fmt.Errorf("the tests took more than %v", g.task.Trial.Limit)
	}
	if silent != nil { // which an agent can bring about: it earns nothing
		verdict = outcome{}
	}
	r = envs.Result{Reward: verdict.reward, Success: verdict.reward >= 1, Components: verdict.components(),
		Info: map[string]float64{"final_tests_passed": verdict.share, "final_tests_unread": envs.Indicator(silent != nil)}}
	text := said.Output
	if silent != nil {
		text += fmt.Sprintf("\n%v (exit status %d)", silent, said.Status)
	}
	g.log.tests(text, verdict)
	if err := g.log.keep(g); err != nil {
		return r, err
	}
	return g.Answered(r, fmt.Sprintf("The tests give a reward of %.4g.\n%s", r.Reward, shorten(text, g.options.Shown)))
}

func (g *game) end() {
	if g.session != nil {
		g.session.Close()
		g.session = nil
	}
}

// Close ends the session and the episode.
func (g *game) Close() error {
	g.end()
	return g.Conversation.Close()
}

// Solve runs the task's solution, and then ends the work.
func (g *game) Solve() ([]string, bool) {
	switch {
	case !g.Running() || g.task.Solution == "":
		return nil, false
	case g.Calls() > 0:
		return []string{"done"}, true
	}
	return []string{tools.CallOf(tools.Tool{Name: shellName, Argument: "command"}, script(g.task.Solution))}, true
}

// script is a shell script without what only says that it is one.
func script(text string) string {
	var kept []string
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if len(kept) > 0 || line != "" && !strings.HasPrefix(line, "#") && line != "set -e" {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}
