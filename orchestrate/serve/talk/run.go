package talk

import (
	"context"
	"iter"
	"sync"
	"time"

	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/serve/host"
	"gyre/torch"
)

// Run is a request's choices while they are sampled.
type Run struct {
	Cancel  context.CancelFunc
	talks   *Talks
	begun   time.Time
	streams []*host.Stream
	prompts []int // tokens, by choice
}

// Start queues all choices, or none.
func (t *Talks) Start(ctx context.Context, requests []host.Request) (*Run, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &Run{Cancel: cancel, talks: t, begun: time.Now()}
	for _, request := range requests {
		stream, err := t.Host.Generate(ctx, request)
		if err != nil {
			cancel()
			return nil, err
		}
		r.streams, r.prompts = append(r.streams, stream), append(r.prompts, len(request.Prompt))
	}
	return r, nil
}

// Choices counts the replies.
func (r *Run) Choices() int { return len(r.streams) }

// Piece is what is new of a choice.
type Piece struct {
	Choice int
	generation.Piece
	// Of a [Turn], whose Text is what is said beside them. Before counts the calls that came earlier.
	Thinking string
	Calls    []chat.ToolCall
	Before   int
}

// pieces yields what is new of all choices until they are complete or the request's context ends. The caller then
// calls Cancel.
func (r *Run) pieces() iter.Seq[Piece] {
	return func(yield func(Piece) bool) {
		merged, stop := make(chan Piece), make(chan struct{})
		var readers sync.WaitGroup
		for i, s := range r.streams {
			readers.Go(func() {
				for p := range s.Pieces() {
					select {
					case merged <- Piece{Choice: i, Piece: p}:
					case <-stop:
						return
					}
				}
			})
		}
		go func() { // ends with the readers, which end with the streams or stop
			readers.Wait()
			close(merged)
		}()
		defer close(stop)
		for p := range merged {
			if !yield(p) {
				return
			}
		}
	}
}

// Play calls visit with what is new of the choices, and at the end of a choice with its output. An error of visit ends
// it, as does that of a choice.
func (r *Run) Play(visit func(p Piece, out *torch.Output) error) error {
	first := true
	for p := range r.pieces() {
		if first {
			first = false
			r.talks.metrics.FirstToken.Observe(time.Since(r.begun).Seconds())
		}
		var out *torch.Output
		if p.Last {
			whole, err := r.streams[p.Choice].Wait()
			if err != nil {
				return err
			}
			out = &whole
			r.talks.metrics.TokensIn.Add(float64(r.prompts[p.Choice]))
			r.talks.metrics.TokensOut.Add(float64(len(out.Tokens)))
		}
		if err := visit(p, out); err != nil {
			return err
		}
	}
	for _, s := range r.streams {
		if _, err := s.Wait(); err != nil {
			return err
		}
	}
	return nil
}
