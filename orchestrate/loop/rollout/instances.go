package rollout

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gyre/envs"
	"gyre/orchestrate/config"
)

// instances keeps environments between episodes, so that what one costs to make (levels to read, a process to start) is paid once
// for as many as are ever played together. It is safe for concurrent use.
type instances struct {
	rewards   []envs.ComponentSpec
	mu        sync.Mutex // guards what follows
	factories map[string]envs.Factory
	idle      map[string][]envs.Env
}

// kind names the environments that may stand in for one another.
func kind(source config.Env) string { return fmt.Sprintf("%s %#v", source.Tag, source.Options) }

// take gives an environment that nobody else uses.
func (p *instances) take(spec envs.Spec, source config.Env) (envs.Env, error) {
	key := kind(source)
	p.mu.Lock()
	if n := len(p.idle[key]); n > 0 {
		env := p.idle[key][n-1]
		p.idle[key] = p.idle[key][:n-1]
		p.mu.Unlock()
		return env, nil
	}
	make, err := p.factories[key], error(nil)
	if make == nil {
		if make, err = spec.Factory(source.Options, p.rewards...); err == nil {
			if p.factories == nil {
				p.factories = map[string]envs.Factory{}
			}
			p.factories[key] = make
		}
	}
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return make()
}

// give takes one back that has come to no harm.
func (p *instances) give(source config.Env, env envs.Env) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle == nil {
		p.idle = map[string][]envs.Env{}
	}
	p.idle[kind(source)] = append(p.idle[kind(source)], env)
}

// close closes all that are idle, each within limit.
func (p *instances) close(limit time.Duration) error {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	var problems []error
	for _, list := range idle {
		for _, env := range list {
			problems = append(problems, closeEnv(env, limit))
		}
	}
	return errors.Join(problems...)
}

// closeEnv closes an environment; one that hangs or panics is reported.
func closeEnv(env envs.Env, limit time.Duration) error {
	_, err := guard(context.Background(), limit, func(context.Context) (struct{}, error) { return struct{}{}, env.Close() }, func() {})
	return err
}
