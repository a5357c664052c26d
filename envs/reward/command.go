package reward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"strings"
	"sync"
	"time"

	"gyre/envs"
	"gyre/internal/coprocess"
	"gyre/internal/quote"
)

type commandOptions struct {
	Command   []string `option:"command" doc:"program and arguments: one JSON object per line in, one per line out"`
	Timeout   float64  `option:"timeout" range:"(0,3600]" doc:"seconds that one reply may take; then the program is started again"`
	Start     float64  `option:"start_timeout" range:"[0,3600]" doc:"seconds of the first reply after a start, if more than timeout"`
	Processes int      `option:"processes" range:"[1,256]" doc:"how many run side by side"`
	Key       string   `option:"key" doc:"which number of the program's answer counts, where that is an object"`
}

// command asks a program. The processes are shared by all components with the same options: a rollout has an
// environment per episode, and a program for each would be too many.
type command struct {
	options commandOptions
	pool    *pool // nil once closed
}

// question is one line to the program: what verl's reward functions are called with, and more.
type question struct {
	Number      int64          `json:"number"`
	DataSource  string         `json:"data_source"`
	Solution    string         `json:"solution_str"`
	GroundTruth string         `json:"ground_truth"`
	ExtraInfo   map[string]any `json:"extra_info"`
	Prompt      string         `json:"prompt"`
	ID          string         `json:"id"`
	Tokens      int            `json:"tokens"`
	Truncated   bool           `json:"truncated"`
}

func newCommand(o commandOptions) (Component, error) {
	if len(o.Command) == 0 || strings.TrimSpace(o.Command[0]) == "" {
		return nil, errors.New(`option command: expected a program with its arguments, such as ["python3", "judge.py"]`)
	}
	return &command{options: o, pool: takePool(o)}, nil
}

// started are the programs that a check has seen wait for a question, by their options: a study has one for all runs.
var started sync.Map

// check starts the program and sees it wait for its first question.
func (c *command) check(ctx context.Context) error {
	if _, known := started.Load(c.options.key()); known {
		return nil
	}
	p := process{command: c.options.Command}
	limit := max(seconds(c.options.Timeout), seconds(c.options.Start))
	ctx, cancel := context.WithTimeoutCause(ctx, limit, tooSlow{"start_timeout", limit})
	defer cancel()
	err := p.start()
	if err == nil {
		if err = p.running.Settle(ctx); ctx.Err() != nil {
			err = fmt.Errorf("it does not read its first line in time: %w", context.Cause(ctx))
		}
		if err == nil && !p.running.Waits() {
			err = errors.New("the program ends before it is asked")
		}
		err = p.failed(err)
		p.stop()
	}
	if err != nil {
		return fmt.Errorf("option command: %q: %w", c.options.Command, err)
	}
	started.Store(c.options.key(), true)
	return nil
}

func (c *command) Close() error {
	if p := c.pool; p != nil {
		c.pool = nil
		givePool(c.options, p)
	}
	return nil
}

// attempts is how often a reply is asked about when the program dies or hangs.
const attempts = 2

func (c *command) Score(ctx context.Context, r Reply) (Score, error) {
	if c.pool == nil {
		return Score{}, errors.New("the component is closed")
	}
	extra, _ := r.Columns["extra_info"].(map[string]any)
	q := question{DataSource: r.Source, Solution: r.Text, GroundTruth: r.Gold, ExtraInfo: extra, Prompt: r.Prompt,
		ID: r.ID, Tokens: r.Tokens, Truncated: r.Truncated}
	var process *process
	select {
	case process = <-c.pool.idle:
	case <-ctx.Done():
		return Score{}, context.Cause(ctx)
	}
	defer func() { c.pool.idle <- process }()
	var failures []error
	for range attempts {
		fresh := process.running == nil
		line, err := process.ask(ctx, &q, seconds(c.options.Timeout), seconds(c.options.Start))
		if err == nil {
			value, err := valueOf(line, c.options.Key)
			if err != nil {
				return Score{}, fmt.Errorf("%s: %w", c.options.Command[0], err)
			}
			return place(r.Text, value), nil
		}
		if errors.As(err, new(coprocess.Unasked)) { // what is started again would do the same
			return Score{}, fmt.Errorf("%s: %w: %w", strings.Join(c.options.Command, " "), envs.ErrUnreliable, err)
		}
		if len(failures) == 0 || failures[0].Error() != err.Error() { // the same once
			failures = append(failures, err)
		}
		if slow := (tooSlow{}); ctx.Err() != nil || fresh && errors.As(err, &slow) { // as slow after another start
			break
		}
	}
	return Score{}, fmt.Errorf("%s: %w", strings.Join(c.options.Command, " "), errors.Join(failures...))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// valueOf reads the program's answer: a number, or an object with the number under key (or under value, score or
// total).
func valueOf(line []byte, key string) (float64, error) {
	var answer any
	if err := json.Unmarshal(line, &answer); err != nil {
		return 0, fmt.Errorf("expected a JSON number or object per line, got %.80q", line)
	}
	var value any = answer
	if fields, is := answer.(map[string]any); is {
		if text, failed := fields["error"].(string); failed {
			return 0, fmt.Errorf("it says %s", quote.Text(text, 400))
		}
		for _, name := range []string{key, "value", "score", "total"} {
			if found, given := fields[name]; given {
				value = found
				break
			}
		}
	}
	switch v := value.(type) {
	case float64:
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			return v, nil
		}
	case bool:
		return envs.Indicator(v), nil
	}
	return 0, fmt.Errorf("expected a finite number, or an object with one under %q, got %.80q", key, line)
}

// bounds are what is kept of a program's output: a line of an answer, and its last words.
var bounds = coprocess.Limits{Line: 1 << 20, Stderr: 500}

// process is one program; it is started when it is first asked, and again when it has died or was killed.
type process struct {
	command []string
	number  int64              // of the last question
	running *coprocess.Process // nil while there is none
}

// tooSlow is that a program did not answer within an option.
type tooSlow struct {
	option string
	limit  time.Duration
}

func (s tooSlow) Error() string { return fmt.Sprintf("it may take %v (option %s)", s.limit, s.option) }

// ask sends one question and waits for its answer, for the first one of a new process at least as long as start.
// After an error there is no process any more.
func (p *process) ask(ctx context.Context, q *question, limit, start time.Duration) (line []byte, err error) {
	fresh, slow := p.running == nil, tooSlow{"timeout", limit}
	if fresh {
		if start > limit {
			slow = tooSlow{"start_timeout", start}
		}
		if err = p.start(); err != nil {
			return nil, err
		}
	}
	p.number++
	q.Number = p.number
	text, err := json.Marshal(q)
	if err == nil {
		ctx, cancel := context.WithTimeoutCause(ctx, slow.limit, slow)
		defer cancel()
		if fresh { // what it says before it is asked
			err = p.running.Settle(ctx)
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer in time: %w", context.Cause(ctx))
		} else if err == nil {
			line, err = p.settled(ctx, text)
		}
		if ctx.Err() != nil && p.running.Blank.Load() {
			err = fmt.Errorf("%w; it printed an empty line, which is no answer", err)
		}
	}
	if err == nil && len(line) > bounds.Line {
		err = fmt.Errorf("the answer has more than %d bytes", bounds.Line)
	}
	return line, p.failed(err)
}

func (p *process) start() (err error) {
	p.running, err = coprocess.Start(exec.Command(p.command[0], p.command[1:]...), bounds)
	return err
}

// failed ends the process after an error, to which it adds what the program said last.
func (p *process) failed(err error) error {
	if program := p.running; err != nil {
		p.stop()
		err = fmt.Errorf("%w%s", err, program.LastWords("; its last words: "))
	}
	return err
}

// patience is how long a program may take to read on after its answer.
const patience = time.Second

// settled asks, and sees that the answer is all that the program says: a line before it would be taken for it, and
// every answer from then on for that of the question after its own.
func (p *process) settled(ctx context.Context, text []byte) ([]byte, error) {
	line, err := p.running.Ask(ctx, text)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := p.running.Settle(ctx); err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%w; the line before it was %s", err, quote.Text(string(line), 200))
	}
	return line, nil
}

// stop ends the process and all that it has started, and waits for it.
func (p *process) stop() {
	if p.running != nil {
		p.running.Stop(0)
		p.running = nil
	}
}

// pool is the processes of one program, all of them in idle while nobody asks.
type pool struct {
	idle  chan *process
	users int
}

// pools are those in use by their program and size.
var pools = struct {
	mu   sync.Mutex // guards open, and users of each pool
	open map[string]*pool
}{open: map[string]*pool{}}

func (o commandOptions) key() string { return fmt.Sprintf("%q %d", o.Command, o.Processes) }

// takePool shares a pool; givePool returns it, and its last user ends the processes.
func takePool(o commandOptions) *pool {
	pools.mu.Lock()
	defer pools.mu.Unlock()
	p := pools.open[o.key()]
	if p == nil {
		p = &pool{idle: make(chan *process, o.Processes)}
		for range o.Processes {
			p.idle <- &process{command: o.Command}
		}
		pools.open[o.key()] = p
	}
	p.users++
	return p
}

func givePool(o commandOptions, p *pool) {
	pools.mu.Lock()
	defer pools.mu.Unlock()
	if p.users--; p.users > 0 {
		return
	}
	delete(pools.open, o.key())
	for range cap(p.idle) {
		(<-p.idle).stop()
	}
}
