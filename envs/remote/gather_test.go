package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// pretend is a server whose requests the test answers by hand.
type pretend struct {
	*gatherer
	asked chan *asked
}

type asked struct {
	ctx    context.Context
	method string
	request
	answer chan any // text, or an error
}

func newPretend(single bool) *pretend {
	p := &pretend{asked: make(chan *asked, 100)}
	p.gatherer = &gatherer{single: single, post: func(ctx context.Context, method string, r request) ([]byte, error) {
		a := &asked{ctx, method, r, make(chan any, 1)}
		p.asked <- a
		select {
		case got := <-a.answer:
			if err, failed := got.(error); failed {
				return nil, err
			}
			return []byte(got.(string)), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	return p
}

func (p *pretend) next(t *testing.T) *asked {
	t.Helper()
	select {
	case a := <-p.asked:
		return a
	case <-time.After(time.Minute):
		t.Fatal("no request came")
		return nil
	}
}

// ok is the answer that an item "x" gets everywhere, unless items says otherwise.
func (a *asked) ok(items map[string]string) string {
	var list []string
	for _, i := range a.Items {
		text, given := items[i.ID]
		if !given {
			text = fmt.Sprintf(`{"id": %q, "observation": {"text": %q}}`, i.ID, "of "+i.ID)
		}
		list = append(list, text)
	}
	return `{"items": [` + strings.Join(list, ",") + `]}`
}

func (a *asked) ids() (ids []string) {
	for _, i := range a.Items {
		ids = append(ids, i.ID)
	}
	slices.Sort(ids)
	return ids
}

// taking has the server say how many calls a request may hold.
func (p *pretend) taking(t *testing.T, batch int) {
	t.Helper()
	got := p.start(t.Context(), call{method: "create", config: json.RawMessage("{}")})
	p.next(t).answer <- fmt.Sprintf(`{"ids": ["first"], "batch": %d}`, batch)
	if o := <-got; o.err != nil || o.id != "first" {
		t.Fatalf("%+v", o)
	}
	for p.mu.Lock(); p.busy > 0; p.mu.Lock() { // an answer is there before its connection is free, and start counts both
		p.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	p.mu.Unlock()
}

type outcome struct {
	reply
	err error
}

// start asks and returns as soon as the call waits or is on its way.
func (p *pretend) start(ctx context.Context, c call) <-chan outcome {
	out := make(chan outcome, 1)
	p.mu.Lock()
	before := len(p.waiting) + p.busy
	p.mu.Unlock()
	go func() {
		got, err := p.ask(ctx, c)
		out <- outcome{got, err}
	}()
	for p.mu.Lock(); len(p.waiting)+p.busy == before && len(out) == 0; p.mu.Lock() {
		p.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	p.mu.Unlock()
	return out
}

func step(id string) call { return call{method: "step", item: item{ID: id, Seq: 1}} }

// What waits goes together, and each call gets its own answer or failure.
func TestCallsThatWaitAreGathered(t *testing.T) {
	for _, single := range []bool{true, false} {
		p := newPretend(single)
		p.taking(t, 4)
		var first []*asked
		for i := range 2 { // these occupy the connections
			if i == 0 || !single {
				p.start(t.Context(), step(fmt.Sprint("first", i)))
				first = append(first, p.next(t))
			}
		}
		calls := map[string]<-chan outcome{}
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			calls[id] = p.start(t.Context(), step(id))
		}
		reset := p.start(t.Context(), call{method: "reset", item: item{ID: "r"}})
		gone, leave := context.WithCancel(t.Context())
		left := p.start(gone, step("left"))
		leave()
		if o := <-left; o.err == nil || !strings.Contains(o.err.Error(), "busy with other environments") {
			t.Errorf("a call whose time is up while it waits: %+v", o)
		}
		if len(p.asked) > 0 {
			t.Fatal("a request was sent although no connection was free")
		}
		first[0].answer <- first[0].ok(nil)
		batch := p.next(t)
		if got := fmt.Sprint(batch.method, batch.ids()); got != "step[a b c d]" {
			t.Errorf("gathered %s, want the four that came first", got)
		}
		batch.answer <- batch.ok(map[string]string{
			"b": `{"id": "b", "error": "lost"}`, "c": `{"id": "c", "gone": true}`,
			"d": `{"id": "a", "observation": {}}`,
		})
		for id, want := range map[string]string{"b": "lost", "c": errGone.Error(), "d": `environment "a"`} {
			if o := <-calls[id]; o.err == nil || !strings.Contains(o.err.Error(), want) {
				t.Errorf("%s: %+v, want an error with %q", id, o, want)
			}
		}
		if o := <-calls["a"]; o.err != nil || o.state.Observation.Text != "of a" {
			t.Errorf("a: %+v", o)
		}
		last := p.next(t)
		if got := fmt.Sprint(last.method, last.ids()); got != "step[e]" {
			t.Errorf("then %s, want the fifth step alone: a reset does not go with it", got)
		}
		last.answer <- last.ok(nil)
		if o := <-calls["e"]; o.err != nil {
			t.Errorf("e: %+v", o)
		}
		last = p.next(t)
		last.answer <- last.ok(nil)
		if o := <-reset; last.method != "reset" || o.err != nil {
			t.Errorf("%s: %+v", last.method, o)
		}
	}
}

// A server that does not speak of batches is asked for one item at a time, and by all at once.
func TestServersWithoutBatches(t *testing.T) {
	p := newPretend(false)
	p.taking(t, 0)
	var calls []<-chan outcome
	for i := range 10 {
		calls = append(calls, p.start(t.Context(), step(fmt.Sprint(i))))
	}
	for range 10 {
		if a := p.next(t); len(a.Items) != 1 {
			t.Errorf("asked for %d items at once", len(a.Items))
		} else {
			a.answer <- a.ok(nil)
		}
	}
	for i, c := range calls {
		if o := <-c; o.err != nil || o.state.ID != fmt.Sprint(i) {
			t.Errorf("%d: %+v", i, o)
		}
	}
}

// A request that fails as a whole is taken apart, whatever was wrong with it: only what fails alone fails.
func TestFailedBatchesAreTakenApart(t *testing.T) {
	for name, failure := range map[string]any{
		"refused": errors.New("400"), "passing": passing{errors.New("500")}, "cut": `{"items": [`,
		"short": `{"items": []}`, "error": `{"error": "no"}`,
	} {
		p := newPretend(false)
		p.taking(t, 8)
		blocking := []<-chan outcome{p.start(t.Context(), step("x")), p.start(t.Context(), step("y"))}
		x, y := p.next(t), p.next(t)
		calls := map[string]<-chan outcome{}
		for _, id := range []string{"a", "b", "c"} {
			calls[id] = p.start(t.Context(), step(id))
		}
		x.answer <- x.ok(nil)
		batch := p.next(t)
		batch.answer <- failure
		for range 3 {
			a := p.next(t)
			if len(a.Items) != 1 {
				t.Fatalf("%s: asked again for %v", name, a.ids())
			}
			if a.Items[0].ID == "b" {
				a.answer <- errors.New("poison")
			} else {
				a.answer <- a.ok(nil)
			}
		}
		for id, c := range calls {
			if o := <-c; (o.err != nil) != (id == "b") {
				t.Errorf("%s: %s: %+v", name, id, o)
			}
		}
		y.answer <- y.ok(nil)
		for _, c := range blocking {
			<-c
		}
	}
	// A lost process is lost for all.
	p := newPretend(true)
	p.taking(t, 8)
	p.start(t.Context(), step("x"))
	x := p.next(t)
	a, b := p.start(t.Context(), step("a")), p.start(t.Context(), step("b"))
	x.answer <- x.ok(nil)
	p.next(t).answer <- fatal{errors.New("dead")}
	if x, y := <-a, <-b; x.err == nil || y.err == nil || len(p.asked) > 0 {
		t.Errorf("%+v, %+v", x, y)
	}
}

// A request goes on for those who still wait, and ends with the last of them.
func TestLeavingABatch(t *testing.T) {
	p := newPretend(true)
	p.taking(t, 8)
	p.start(t.Context(), step("x"))
	x := p.next(t)
	first, leave := context.WithCancel(t.Context())
	second, leaveToo := context.WithCancel(t.Context())
	a, b := p.start(first, step("a")), p.start(second, step("b"))
	x.answer <- x.ok(nil)
	batch := p.next(t)
	leave()
	if o := <-a; o.err == nil || !errors.Is(o.err, context.Canceled) || batch.ctx.Err() != nil {
		t.Errorf("%+v; the request: %v", o, batch.ctx.Err())
	}
	leaveToo()
	<-b
	<-batch.ctx.Done()
}

// Environments are made together, under one configuration.
func TestCreatesAreGathered(t *testing.T) {
	p := newPretend(true)
	p.taking(t, 8)
	p.start(t.Context(), step("x"))
	x := p.next(t)
	var calls []<-chan outcome
	for _, config := range []string{`{"a": 1}`, `{"a": 1}`, `{"a": 2}`} {
		calls = append(calls, p.start(t.Context(), call{method: "create", config: json.RawMessage(config)}))
	}
	x.answer <- x.ok(nil)
	for i, want := range []int{2, 1} {
		a := p.next(t)
		if a.Count != want {
			t.Errorf("request %d makes %d environments, want %d", i, a.Count, want)
		}
		a.answer <- `{"ids": [` + []string{`"p", "q"`, `"r"`}[i] + `], "batch": 8}`
	}
	var got []string
	for _, c := range calls {
		got = append(got, (<-c).id)
	}
	if slices.Sort(got[:2]); !slices.Equal(got, []string{"p", "q", "r"}) {
		t.Errorf("made %q", got)
	}
}

// Against concurrent callers with a server that answers at once: nothing is lost, nobody waits for ever.
func TestGatheringUnderLoad(t *testing.T) {
	for _, single := range []bool{true, false} {
		g := &gatherer{single: single, takes: 16,
			post: func(_ context.Context, _ string, r request) ([]byte, error) {
				a := &asked{request: r}
				return []byte(a.ok(nil)), nil
			}}
		var wait sync.WaitGroup
		for i := range 50 {
			wait.Go(func() {
				for range 100 {
					id := fmt.Sprint(i)
					if got, err := g.ask(t.Context(), step(id)); err != nil || got.state.ID != id {
						t.Errorf("%s: %+v, %v", id, got, err)
					}
				}
			})
		}
		wait.Wait()
		if g.calls.Load() != 5000 || g.requests.Load() > 5000 {
			t.Errorf("%d calls in %d requests, want 5000 in no more", g.calls.Load(), g.requests.Load())
		}
	}
}
