package generation

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"gyre/torch"
)

// Sampler is an engine as a run has it.
type Sampler interface {
	Engine
	Stats() (torch.EngineStats, error)
	// Sleep frees what is not needed until the next step.
	Sleep() error
	Close() error
}

// Shared is one engine for several runs that take turns. They sample together: a round begins when every member has
// come to it, their requests decode in one batch, and it ends for all of them when the last is done. Between rounds one
// member at a time has its turn.
//
//	member a   turn ─┐                    ┌─ turn ─┐
//	member b         └ turn ─┐            │        └ turn ─┐
//	                         └─ round ────┘                └─ round …
//
// A request's results do not depend on the batch around it, so a member's are those of an engine of its own.
type Shared struct {
	turn chan struct{} // holds the turn of whoever has it

	mu                        sync.Mutex // guards what follows, and the engine's calls
	engine                    Sampler    // nil before Use
	members, waiting, playing int
	begun, ended              chan struct{}      // closed when the next round begins, and when the round at hand ends
	owners                    map[uint64]*Member // of the engine's requests
	requests                  uint64             // ids that were given
	vocabulary                bool
}

// NewShared has no engine yet: Use gives it one.
func NewShared() *Shared {
	return &Shared{turn: make(chan struct{}, 1), begun: make(chan struct{}), owners: map[uint64]*Member{}}
}

// Use sets the engine.
func (s *Shared) Use(engine Sampler) { s.engine = engine }

// Member is one run's view of a shared engine. It belongs to one goroutine.
type Member struct {
	*Shared
	// Policy samples what names no policy.
	Policy *torch.Model

	holds    bool              // the turn
	mine     map[uint64]uint64 // the engine's ids of unpolled requests, by those that the member gave
	names    map[uint64]uint64 // the other way round
	finished []torch.Output
	partial  []torch.Partial
}

var _ Sampler = (*Member)(nil)

// Join adds a member, and waits for its turn. Leave it.
func (s *Shared) Join(ctx context.Context) (*Member, error) {
	m := &Member{Shared: s, mine: map[uint64]uint64{}, names: map[uint64]uint64{}}
	s.mu.Lock()
	s.members++
	s.mu.Unlock()
	if err := m.take(ctx); err != nil {
		m.Leave()
		return nil, err
	}
	return m, nil
}

// Leave ends a membership: nobody waits for the member any more.
func (m *Member) Leave() {
	m.give()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.members--
	m.begin()
}

func (m *Member) take(ctx context.Context) error {
	select {
	case m.turn <- struct{}{}:
		m.holds = true
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m *Member) give() {
	if m.holds {
		<-m.turn
		m.holds = false
	}
}

// begin begins a round when all members wait for one. The lock is held.
func (s *Shared) begin() {
	if s.playing > 0 || s.waiting == 0 || s.waiting < s.members {
		return
	}
	s.playing, s.waiting = s.waiting, 0
	close(s.begun)
	s.begun, s.ended = make(chan struct{}), make(chan struct{})
}

// TensorParallel is a round: run samples while other members do. The member's turn ends before it, and the next has
// come when it returns.
func (m *Member) TensorParallel(ctx context.Context, run func() error) error {
	m.give()
	m.mu.Lock()
	m.waiting++
	begun := m.begun
	m.begin()
	m.mu.Unlock()
	select {
	case <-begun:
	case <-ctx.Done():
		m.mu.Lock()
		defer m.mu.Unlock()
		select {
		case <-begun: // meanwhile: the others wait for the end of what this member does not begin
			return errors.Join(context.Cause(ctx), m.end())
		default:
			m.waiting--
			return context.Cause(ctx)
		}
	}
	err := run()
	m.mu.Lock()
	ended := m.ended
	err = errors.Join(err, m.end())
	m.mu.Unlock()
	select {
	case <-ended:
	case <-ctx.Done():
		return errors.Join(err, context.Cause(ctx))
	}
	return errors.Join(err, m.take(ctx))
}

// end takes the member out of the round. The last one's memory for keys and values is what training needs next. The
// lock is held.
func (m *Member) end() (err error) {
	if m.playing--; m.playing == 0 {
		err = m.engine.Sleep()
		close(m.ended)
		m.begin()
	}
	return err
}

// Submit queues a request under an id of the engine's own.
func (m *Member) Submit(r torch.Request) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, taken := m.mine[r.ID]; taken {
		return fmt.Errorf("request %d is being sampled already", r.ID)
	}
	name := r.ID
	if r.ID = m.requests; r.Policy == nil {
		r.Policy = m.Policy
	}
	if err := m.engine.Submit(r); err != nil {
		return err
	}
	m.requests++
	m.owners[r.ID], m.mine[name], m.names[r.ID] = m, r.ID, name
	return nil
}

// Step advances the replies of all members, unless one of the member's own is finished already.
func (m *Member) Step() (unfinished int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.finished) > 0 {
		return len(m.mine), nil
	}
	if _, err := m.engine.Step(); err != nil {
		return 0, err
	}
	return len(m.mine), m.collect()
}

// collect gives the engine's finished replies to their owners. The lock is held.
func (s *Shared) collect() error {
	outputs, err := s.engine.Poll()
	for _, out := range outputs {
		m, id := s.owners[out.ID], out.ID
		out.ID = m.names[id]
		delete(s.owners, id)
		delete(m.names, id)
		delete(m.mine, out.ID)
		m.finished = append(m.finished, out)
	}
	return err
}

// Progress tells what the member's unfinished replies grew by.
func (m *Member) Progress() ([]torch.Partial, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all, err := m.engine.Progress()
	for _, p := range all {
		owner := m.owners[p.ID]
		p.ID = owner.names[p.ID]
		owner.partial = append(owner.partial, p)
	}
	mine := m.partial
	m.partial = nil
	return mine, err
}

// Poll takes the member's finished replies.
func (m *Member) Poll() ([]torch.Output, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.collect()
	mine := m.finished
	m.finished = nil
	return mine, err
}

// Abort ends one of the member's requests early.
func (m *Member) Abort(id uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	name, asked := m.mine[id]
	if !asked {
		return fmt.Errorf("request %d: %w", id, torch.ErrNotFound)
	}
	return m.engine.Abort(name)
}

// SetVocabulary gives the engine the tokens' bytes; members have the same.
func (m *Member) SetVocabulary(vocabulary [][]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.vocabulary {
		return nil
	}
	m.vocabulary = true
	return m.engine.SetVocabulary(vocabulary)
}

// Follows is false: members are of one process.
func (m *Member) Follows() bool { return false }

// Sleep does nothing: the engine sleeps at the end of a round.
func (m *Member) Sleep() error { return nil }

// Close leaves the engine to the others.
func (m *Member) Close() error { return nil }

// Stats are the engine's, of all members' requests.
func (m *Member) Stats() (torch.EngineStats, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.engine.Stats()
}
