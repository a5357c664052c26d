package openai

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"sync"
	"time"

	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/host"
	"gyre/torch"
)

// run is a request's choices while they are sampled.
type run struct {
	api     *API
	begun   time.Time
	cancel  context.CancelFunc
	streams []*host.Stream
	prompts []int // tokens, by choice
}

// start queues all choices, or none.
func (a *API) start(ctx context.Context, requests []host.Request) (*run, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &run{api: a, begun: time.Now(), cancel: cancel}
	for _, request := range requests {
		stream, err := a.host.Generate(ctx, request)
		if err != nil {
			cancel()
			return nil, err
		}
		r.streams, r.prompts = append(r.streams, stream), append(r.prompts, len(request.Prompt))
	}
	return r, nil
}

// piece is what is new of a choice.
type piece struct {
	choice int
	generation.Piece
}

// pieces yields what is new of all choices until they are complete or the request's context ends. The caller then
// calls close.
func (r *run) pieces() iter.Seq[piece] {
	return func(yield func(piece) bool) {
		merged, stop := make(chan piece), make(chan struct{})
		var readers sync.WaitGroup
		for i, s := range r.streams {
			readers.Go(func() {
				for p := range s.Pieces() {
					select {
					case merged <- piece{i, p}:
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

// play calls visit with what is new of the choices, and at the end of a choice with its output. An error of visit ends
// it, as does that of a choice.
func (r *run) play(visit func(p piece, out *torch.Output) error) error {
	first := true
	for p := range r.pieces() {
		if first {
			first = false
			r.api.metrics.FirstToken.Observe(time.Since(r.begun).Seconds())
		}
		var out *torch.Output
		if p.Last {
			whole, err := r.streams[p.choice].Wait()
			if err != nil {
				return err
			}
			out = &whole
			r.api.metrics.TokensIn.Add(float64(r.prompts[p.choice]))
			r.api.metrics.TokensOut.Add(float64(len(out.Tokens)))
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

// events writes server-sent events. The first failure ends them.
type events struct {
	w       http.ResponseWriter
	started bool
	err     error
}

// send writes one event; kind is its name, or "".
func (e *events) send(kind string, value any) {
	data, err := json.Marshal(value)
	if err != nil || e.err != nil {
		e.err = err
		return
	}
	e.text(kind, string(data))
}

func (e *events) text(kind, data string) {
	if !e.started {
		e.started = true
		e.w.Header().Set("Content-Type", "text/event-stream")
		e.w.Header().Set("Cache-Control", "no-store")
		e.w.WriteHeader(http.StatusOK)
	}
	if kind != "" {
		kind = "event: " + kind + "\n"
	}
	if _, e.err = e.w.Write([]byte(kind + "data: " + data + "\n\n")); e.err == nil {
		e.err = http.NewResponseController(e.w).Flush()
	}
}

// fail tells of an error, also in the middle of an answer.
func (e *events) fail(err error) {
	if !e.started {
		serve.Fail(e.w, err)
		return
	}
	e.send("", map[string]any{"error": serve.ErrorOf(err)})
}

// finish ends an answer: with an error, as a whole, or as the last events of a stream.
func (e *events) finish(p *parameters, err error, whole, usage any) {
	switch {
	case e.err != nil: // nobody listens
	case err != nil:
		e.fail(err)
	case !p.Stream:
		serve.Answer(e.w, http.StatusOK, whole)
	default:
		if p.StreamOptions.IncludeUsage {
			e.send("", usage)
		}
		e.text("", "[DONE]")
	}
}

// finishReason is the reason as OpenAI calls it.
func finishReason(f torch.Finish, called bool) *string {
	reason := f.String()
	if called {
		reason = "tool_calls"
	}
	return &reason
}
