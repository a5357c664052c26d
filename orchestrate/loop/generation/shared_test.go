package generation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"gyre/torch"
)

// counting is an engine whose replies take as many steps as their prompts have tokens; it counts what decodes together.
type counting struct {
	Sampler
	left     map[uint64]int
	finished []torch.Output
	most     int // requests at once
	slept    int
}

func (e *counting) Submit(r torch.Request) error {
	e.left[r.ID] = len(r.Prompt)
	e.most = max(e.most, len(e.left))
	return nil
}

func (e *counting) Step() (int, error) {
	for id := range e.left {
		if e.left[id]--; e.left[id] == 0 {
			delete(e.left, id)
			e.finished = append(e.finished, torch.Output{ID: id, Tokens: []int32{1}})
		}
	}
	return len(e.left), nil
}

func (e *counting) Poll() ([]torch.Output, error) {
	out := e.finished
	e.finished = nil
	return out, nil
}

func (e *counting) Abort(id uint64) error {
	delete(e.left, id)
	e.finished = append(e.finished, torch.Output{ID: id, Finish: torch.FinishAbort})
	return nil
}

func (e *counting) Sleep() error {
	e.slept++
	return nil
}

// Members sample in one batch whatever ids they give, one at a time has its turn otherwise, and who fails or leaves
// holds nobody up.
func TestMembersSampleTogetherAndTakeTurns(t *testing.T) {
	engine := &counting{left: map[uint64]int{}}
	shared := NewShared()
	shared.Use(engine)
	const members, rounds = 4, 3
	var work, submitted sync.WaitGroup
	submitted.Add(members)
	turns, failed := 0, errors.New("failed")
	all := make([]*Member, members)
	for i := range all {
		all[i] = &Member{Shared: shared, mine: map[uint64]uint64{}, names: map[uint64]uint64{}}
		shared.members++
	}
	for i, m := range all {
		work.Go(func() {
			defer m.Leave()
			if err := m.take(t.Context()); err != nil {
				t.Error(err)
			}
			driver := New(m, nil)
			for round := range rounds {
				turns++ // of whose turn it is: the race detector would see two
				err := m.TensorParallel(t.Context(), func() error {
					for id := range uint64(2) {
						if err := driver.Submit(Request{Request: torch.Request{ID: id, Prompt: make([]int32, 3+i)}}); err != nil {
							return err
						}
					}
					if round == 0 {
						submitted.Done()
						submitted.Wait()
					}
					if i == 1 && round == 1 {
						return errors.Join(failed, driver.Release())
					}
					seen := map[uint64]bool{}
					err := driver.Run(t.Context(), func(o torch.Output) error {
						if seen[o.ID] = true; o.ID > 1 || o.Finish == torch.FinishAbort {
							return fmt.Errorf("reply %d (%s)", o.ID, o.Finish)
						}
						return nil
					})
					if len(seen) != 2 {
						err = errors.Join(err, fmt.Errorf("%d replies, want 2", len(seen)))
					}
					return err
				})
				if errors.Is(err, failed) && i == 1 && round == 1 {
					return
				} else if err != nil {
					t.Errorf("member %d: %v", i, err)
				}
			}
		})
	}
	work.Wait()
	if turns != members*rounds-1 || engine.slept != rounds || engine.most != 2*members || len(shared.owners) != 0 {
		t.Errorf("%d turns, %d rounds, at most %d requests, %d left", turns, engine.slept, engine.most, len(shared.owners))
	}
}

// Who waits for a round or for a turn does so no longer than its context lasts.
func TestAMemberThatIsStoppedWaitsForNobody(t *testing.T) {
	shared := NewShared()
	shared.Use(&counting{left: map[uint64]int{}})
	one, err := shared.Join(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := shared.Join(stopped); !errors.Is(err, context.Canceled) {
		t.Errorf("joining: %v", err)
	}
	shared.members++ // somebody who never comes
	if err := one.TensorParallel(stopped, func() error { return errors.New("it ran") }); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for a round: %v", err)
	}
	shared.members--
	if err := one.TensorParallel(t.Context(), func() error { return nil }); err != nil {
		t.Errorf("the next round: %v", err)
	}
	one.Leave()
}
