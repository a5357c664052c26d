package rollout

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sourcegraph/conc/panics"

	"gyre/envs"
	"gyre/internal/quote"
)

// instances keeps the environments of one tag and set of options between episodes, so that what one costs to make
// (levels to read, a process to start) is paid once for as many as are ever played at once. It is safe for concurrent
// use.
type instances struct {
	make envs.Factory
	mu   sync.Mutex // guards idle
	idle []envs.Env
}

// newInstances makes the first instance, which tries the options.
func newInstances(spec envs.Spec, options map[string]any, components []envs.ComponentSpec) (*instances, error) {
	make, err := spec.Factory(options, components...)
	if err != nil {
		return nil, err
	}
	p := &instances{make: make}
	env, err := p.take()
	if err == nil {
		p.give(env)
	}
	return p, err
}

// take gives an environment that nobody else uses.
func (p *instances) take() (env envs.Env, err error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		env, p.idle = p.idle[n-1], p.idle[:n-1]
	}
	p.mu.Unlock()
	if env != nil {
		return env, nil
	}
	if recovered := panics.Try(func() { env, err = p.make() }); recovered != nil {
		return nil, quote.Error(fmt.Errorf("making an environment panicked: %v", recovered.Value))
	}
	return env, err
}

// give takes one back that has come to no harm.
func (p *instances) give(env envs.Env) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, env)
}

// close closes all that are idle, each within limit.
func (p *instances) close(limit time.Duration) error {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	var problems []error
	for _, env := range idle {
		problems = append(problems, closeEnv(env, limit))
	}
	return errors.Join(problems...)
}

// closeEnv closes an environment; one that hangs or panics is reported.
func closeEnv(env envs.Env, limit time.Duration) error {
	closing := func(context.Context) (struct{}, error) { return struct{}{}, env.Close() }
	_, err := guard(context.Background(), limit, closing, func() {})
	return err
}
