package reward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"gyre/internal/quote"
)

type commandOptions struct {
	Command   []string `option:"command" doc:"program and arguments: one JSON object per line in, one per line out"`
	Timeout   float64  `option:"timeout" range:"(0,3600]" doc:"seconds that one reply may take; then the program is started again"`
	Start     float64  `option:"start_timeout" range:"[0,3600]" doc:"seconds of the first reply after a start, if more than timeout"`
	Processes int      `option:"processes" range:"[1,256]" doc:"how many run side by side"`
	Key       string   `option:"key" doc:"which number of the program's answer counts, where that is an object"`
}

func init() {
	Register(Kind{"command", "the number that a program of yours gives for the reply",
		func() any { return &commandOptions{Timeout: 10, Start: 25, Processes: 1, Key: "score"} },
		func(o any) (Component, error) { return newCommand(*o.(*commandOptions)) }})
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
	return &command{options: o, pool: pools.take(o)}, nil
}

func (c *command) Close() error {
	if c.pool == nil {
		return nil
	}
	p := c.pool
	c.pool = nil
	return pools.give(c.options, p)
}

// attempts is how often a reply is asked about when the program dies or hangs.
const attempts = 2

func (c *command) Score(ctx context.Context, r Reply) (Score, error) {
	if c.pool == nil {
		return Score{}, errors.New("the component is closed")
	}
	extra, _ := r.Columns["extra_info"].(map[string]any)
	q := question{DataSource: r.Source, Solution: r.Text, GroundTruth: r.Gold, ExtraInfo: extra, Prompt: r.Prompt,
		ID:     r.ID,
		Tokens: r.Tokens, Truncated: r.Truncated}
	var process *process
	select {
	case process = <-c.pool.idle:
	case <-ctx.Done():
		return Score{}, context.Cause(ctx)
	}
	defer func() { c.pool.idle <- process }()
	var failures []error
	for range attempts {
		line, err := process.ask(ctx, &q, seconds(c.options.Timeout), seconds(c.options.Start))
		if err == nil {
			value, err := valueOf(line, c.options.Key)
			if err != nil {
				return Score{}, fmt.Errorf("%s: %w", c.options.Command[0], err)
			}
			s := place(r.Text, value)
			return s, nil
		}
		failures = append(failures, err)
		if ctx.Err() != nil {
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
		return indicator(v), nil
	}
	return 0, fmt.Errorf("expected a finite number, or an object with one under %q, got %.80q", key, line)
}

// pool is the processes of one program.
type pool struct {
	idle  chan *process
	all   []*process
	users int
}

var pools = poolSet{open: map[string]*pool{}}

type poolSet struct {
	mu   sync.Mutex
	open map[string]*pool
}

func keyOf(o commandOptions) string {
	return fmt.Sprintf("%q %d", o.Command, o.Processes)
}

func (s *poolSet) take(o commandOptions) *pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.open[keyOf(o)]
	if p == nil {
		p = &pool{idle: make(chan *process, o.Processes)}
		for range o.Processes {
			process := &process{command: o.Command}
			p.all = append(p.all, process)
			p.idle <- process
		}
		s.open[keyOf(o)] = p
	}
	p.users++
	return p
}

// give returns a pool. The last user's return ends its processes.
func (s *poolSet) give(o commandOptions, p *pool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.users--; p.users > 0 {
		return nil
	}
	delete(s.open, keyOf(o))
	for range p.all {
		(<-p.idle).stop()
	}
	return nil
}
