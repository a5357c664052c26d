package host

import (
	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/model/chat"
	"gyre/torch"
)

// firstEmbedded is above the ids of those who step the engine.
const firstEmbedded = 1 << 40

// Embedded is a host of an engine that somebody else owns and steps, such as a run that plays episodes: requests join
// that one's batch. The owner calls what [Host.Events] gives between two steps, hands over outputs that are not its own
// ([Host.Finished]), and in the end closes the host with [Host.End]. Requests may call the model by any name.
func Embedded(driver *generation.Driver, tokenizer *chat.Tokenizer, m Model) *Host {
	h := &Host{options: Options{Name: m.Name, MaxLength: int64(m.MaxLength), MaxSequences: firstEmbedded}, model: m,
		tokenizer: tokenizer, longest: longest(tokenizer), stop: tokenizer.StopIDs(), names: []string{m.Name},
		events: make(chan func()), drain: make(chan struct{}), ended: make(chan struct{}), driver: driver,
		live: map[uint64]*Stream{}}
	h.nextID.Store(firstEmbedded)
	h.stats.Store(&torch.EngineStats{})
	return h
}

// Events are what the host wants done between two steps.
func (h *Host) Events() <-chan func() { return h.events }

// Finished takes the output of a request of the host. Events and Finished are for the goroutine that steps the engine,
// as is GiveUp.
func (h *Host) Finished(out torch.Output) {
	if s := h.live[out.ID]; s != nil {
		delete(h.live, out.ID)
		s.end(out, nil)
	}
}

// End refuses what is asked from now on. Nobody steps the engine any more.
func (h *Host) End() {
	h.GiveUp(ErrClosed)
	if !h.closes.Swap(true) {
		close(h.ended)
	}
}
