package gateway

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"time"

	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/anthropic"
	"gyre/orchestrate/serve/host"
	"gyre/orchestrate/serve/openai"
)

func init() { rollout.OpenGateway = openTraining }

// training is the gateway of a run: a server whose sessions are the run's episodes, in the run's batch.
type training struct {
	*host.Host
	store  *Store
	cancel context.CancelFunc
	ended  chan error // of the server; holds one
}

// openTraining starts the server, which ends with Close.
func openTraining(o rollout.GatewayOptions) (rollout.Gateway, error) {
	if address, _, err := net.SplitHostPort(o.Listen); err != nil || !serve.Loopback(address) {
		return nil, fmt.Errorf("listen = %q: expected an address of this machine, such as 127.0.0.1:0; a tunnel "+
			"brings others here", o.Listen)
	}
	m := host.Model{Name: "policy", MaxLength: o.MaxLength, Opened: time.Now()}
	m.Shape.VocabSize = int64(o.Tokenizer.VocabSize()) // what clients may send
	h := host.Embedded(o.Driver, o.Tokenizer, m)
	g := &training{Host: h, store: New(o.Tokenizer, 1<<16, 30*time.Minute), ended: make(chan error, 1)}
	g.store.training = true
	server := serve.New(h, serve.Options{Listen: o.Listen, Key: rand.Text(), MaxBody: 64 << 20, MaxConnections: 8192,
		PublicPaths: []string{"/healthz", "/health", "/v1/sessions"}, Log: io.Discard})
	g.store.Mount(server, openai.Mount(server, g.store.Of), anthropic.Mount(server, g.store.Of))
	ctx, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	ready := make(chan string, 1)
	// It ends with cancel, which Close calls.
	go func() { g.ended <- server.Run(ctx, func(url string) { ready <- url }) }()
	select {
	case g.store.url = <-ready:
		return g, nil
	case err := <-g.ended:
		cancel()
		return nil, err
	}
}

// Open starts the conversation of an episode.
func (g *training) Open(rules rollout.Rules) (rollout.Conversation, error) {
	return g.store.open("", rules)
}

// Close ends the server, and with it what clients still ask.
func (g *training) Close() error {
	g.End()
	g.cancel()
	return <-g.ended
}
