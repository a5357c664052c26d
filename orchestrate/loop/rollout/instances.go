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
	"gyre/orchestrate/config"
	"gyre/orchestrate/model/chat"
)

// instances keeps environments between episodes, so that what one costs to make (levels to read, a process to start)
// is paid once for as many as are ever played at once. It is safe for concurrent use.
type instances struct {
	components []envs.ComponentSpec // that the experiment asks for

	mu    sync.Mutex // guards what follows
	kinds map[string]*instanceKind
}

// instanceKind is the environments of one tag and set of options.
type instanceKind struct {
	make  envs.Factory
	tried bool // an instance was made
	idle  []envs.Env
}

// kind finds the environments that can stand in for one another. The caller holds the mutex.
func (p *instances) kind(spec envs.Spec, source config.Env) (*instanceKind, error) {
	key := fmt.Sprintf("%s %#v", source.Tag, source.Options)
	if k := p.kinds[key]; k != nil {
		return k, nil
	}
	spec.CountTokens = chat.CountTokens
	make, err := spec.Factory(source.Options, p.components...)
	if err != nil {
		return nil, err
	}
	if p.kinds == nil {
		p.kinds = map[string]*instanceKind{}
	}
	p.kinds[key] = &instanceKind{make: make}
	return p.kinds[key], nil
}

// try makes a source's first instance, which tries its options. Once one was made nothing is tried any more.
func (p *instances) try(spec envs.Spec, source config.Env) error {
	p.mu.Lock()
	k, err := p.kind(spec, source)
	done := err == nil && k.tried
	p.mu.Unlock()
	if err != nil || done {
		return err
	}
	env, err := p.take(spec, source)
	if err != nil {
		return err
	}
	p.give(source, env)
	return nil
}

// take gives an environment that nobody else uses.
func (p *instances) take(spec envs.Spec, source config.Env) (env envs.Env, err error) {
	p.mu.Lock()
	k, err := p.kind(spec, source)
	if err != nil {
		p.mu.Unlock()
		return nil, err
	}
	if n := len(k.idle); n > 0 {
		env, k.idle = k.idle[n-1], k.idle[:n-1]
	}
	p.mu.Unlock()
	if env != nil {
		return env, nil
	}
	if recovered := panics.Try(func() { env, err = k.make() }); recovered != nil {
		return nil, quote.Error(fmt.Errorf("environment %s: making it panicked: %v", spec.Tag, recovered.Value))
	}
	return env, err
}

// give takes one back that has come to no harm.
func (p *instances) give(source config.Env, env envs.Env) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.kinds[fmt.Sprintf("%s %#v", source.Tag, source.Options)]; k != nil {
		k.tried, k.idle = true, append(k.idle, env)
	}
}

// close closes all that are idle, each within limit.
func (p *instances) close(limit time.Duration) error {
	p.mu.Lock()
	kinds := p.kinds
	p.kinds = nil
	p.mu.Unlock()
	var problems []error
	for _, k := range kinds {
		for _, env := range k.idle {
			problems = append(problems, closeEnv(env, limit))
		}
	}
	return errors.Join(problems...)
}

// closeEnv closes an environment; one that hangs or panics is reported.
func closeEnv(env envs.Env, limit time.Duration) error {
	_, err := guard(context.Background(), limit, func(context.Context) (struct{}, error) {
		return struct{}{},
			env.Close()
	}, func() {})
	return err
}
