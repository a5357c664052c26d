package host

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"gyre/internal/nearest"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/run/rundir"
	"gyre/torch"
)

// Adapter is a PEFT adapter that is served beside the model under a name of its own.
type Adapter struct{ Name, Dir string }

// Options say what is served and how much of it at a time. Zero values have a default.
type Options struct {
	Dir          string // a Hugging Face directory, a checkpoint or a run
	Name         string // that requests call the model by; Dir as it was given
	Adapters     []Adapter
	ChatTemplate string // Jinja source in place of the model's own template
	Placement    torch.Placement

	MaxLength    int64 // tokens of a prompt and its reply; as many as the model has positions, at most 32768
	MaxSequences int64 // requests that decode together; 64
	MaxWaiting   int64 // further requests that wait for them; 256
	KVBytes      int64 // keys and values, cached prompts included; 1 GiB, or more if one request needs more

	Warn func(text string) // is told of what is passed over; nil: nobody
}

// withDefaults fills the zero values in.
func (o Options) withDefaults(shape torch.ModelConfig) (Options, error) {
	o.Name = cmp.Or(o.Name, o.Dir)
	if o.MaxLength > shape.MaxPositions {
		return o, fmt.Errorf("a length of %d tokens is asked for, but the model in %s has %d positions", o.MaxLength,
			o.Dir, shape.MaxPositions)
	}
	o.MaxLength = cmp.Or(o.MaxLength, min(shape.MaxPositions, 32768))
	o.MaxSequences, o.MaxWaiting = cmp.Or(o.MaxSequences, 64), cmp.Or(o.MaxWaiting, 256)
	// four bytes an element at most, and a block of positions that is not full
	one := (o.MaxLength + 64) * 2 * shape.NumLayers * shape.NumKVHeads * shape.HeadDim * 4
	o.KVBytes = cmp.Or(o.KVBytes, max(1<<30, one))
	return o, nil
}

// Model says what is served.
type Model struct {
	Name      string
	Dir       string // where the weights lie
	Shape     torch.ModelConfig
	MaxLength int
	Opened    time.Time
	// Base holds the weights that adapters lie beside; it is frozen. Only [Host.Do] may use it.
	Base *torch.Model
}

// Host serves a model. Its methods may be called by any goroutine.
type Host struct {
	options   Options
	model     Model
	tokenizer *chat.Tokenizer
	stop      []int32
	longest   int                     // bytes of a token
	names     []string                // of the policies, the model's own first
	policies  map[string]*torch.Model // by name; not changed once the host is open

	ctx    context.Context // the end of which gives up what is running
	events chan func()     // what the loop does between two steps; unbuffered
	closes atomic.Bool     // no further requests
	drain  chan struct{}   // closed by Close
	ended  chan struct{}   // closed by the loop

	asked  atomic.Int64 // requests that are not finished
	nextID atomic.Uint64
	stats  atomic.Pointer[torch.EngineStats]

	// Below: the loop only.
	engine *torch.Engine
	driver *generation.Driver
	live   map[uint64]*Stream
}

// Open reads the model and starts the loop. The end of ctx gives up whatever is running then; [Host.Close] waits for
// it instead.
func Open(ctx context.Context, o Options) (*Host, error) {
	found, passed, err := checkpoint.Find(o.Dir, rundir.CheckpointPrefix)
	if err != nil {
		return nil, err
	}
	for _, problem := range passed {
		o.warn("passed over: %v", problem)
	}
	on, why, err := experiment.Settle(o.Placement, o.Dir)
	if err != nil {
		return nil, err
	}
	if why != "" {
		o.warn("computes in %s: %s", on.Compute, why)
	}
	on.Frozen = true
	opened, err := experiment.OpenModel(found.Actor, torch.HeadLM, on)
	if err != nil {
		return nil, err
	}
	if o, err = o.withDefaults(opened.Shape); err != nil {
		return nil, err
	}
	h := &Host{options: o, ctx: ctx, events: make(chan func()), drain: make(chan struct{}),
		ended: make(chan struct{}), live: map[uint64]*Stream{}, policies: map[string]*torch.Model{}}
	if err := h.openTokenizer(experiment.TokenizerOf(found, opened.Dir), opened); err != nil {
		return nil, err
	}
	if err := h.load(opened, found.Actor); err != nil {
		h.free()
		return nil, err
	}
	go h.run() // Close waits for it
	return h, nil
}

func (o Options) warn(format string, args ...any) {
	if o.Warn != nil {
		o.Warn(fmt.Sprintf(format, args...))
	}
}

func (h *Host) openTokenizer(dir string, m *experiment.Model) (err error) {
	if err := checkpoint.VerifySettings(dir); err != nil {
		return err
	}
	if h.tokenizer, err = chat.Load(dir); err != nil {
		return err
	}
	if err := h.tokenizer.CheckReplies(); err != nil {
		return err
	}
	if source := h.options.ChatTemplate; source != "" {
		if err := h.tokenizer.SetTemplate(source); err != nil {
			return err
		}
	}
	if n := int64(h.tokenizer.VocabSize()); n > m.Shape.VocabSize {
		return fmt.Errorf("the tokenizer of %s has %d tokens but the vocabulary of the model in %s is %d: they do not "+
			"belong together", dir, n, m.Dir, m.Shape.VocabSize)
	}
	h.longest = longest(h.tokenizer)
	h.stop, err = m.StopIDs(h.tokenizer)
	return err
}

// longest is the number of bytes of the longest token.
func longest(t *chat.Tokenizer) (bytes int) {
	for _, token := range t.Vocabulary() {
		bytes = max(bytes, len(token))
	}
	return bytes
}

// load reads the weights of the model and of the adapters, and makes the engine.
func (h *Host) load(m *experiment.Model, dir string) error {
	whole := m.Base()
	base, notes, err := whole.Load()
	if err != nil {
		return err
	}
	for _, note := range notes {
		h.options.warn("%s", note)
	}
	h.model = Model{Name: h.options.Name, Dir: dir, Shape: whole.Shape, MaxLength: int(h.options.MaxLength),
		Opened: time.Now(), Base: base}
	h.policies[""] = base
	if err := h.add(h.options.Name, base, m); err != nil {
		return err
	}
	for _, a := range h.options.Adapters {
		adapter, err := whole.WithAdapter(a.Dir)
		if err != nil {
			return fmt.Errorf("the adapter %s: %w", a.Name, err)
		}
		if err := h.add(a.Name, base, adapter); err != nil {
			return err
		}
	}
	h.engine, err = torch.NewEngine(base, torch.EngineConfig{MaxSequences: h.options.MaxSequences,
		MaxLength: h.options.MaxLength, MaxBatchTokens: 1024, KVBytes: h.options.KVBytes, PrefixCache: true,
		SpeculativeTokens: torch.SpeculativeTokens})
	if err != nil {
		return err
	}
	h.driver = generation.New(h.engine, h.tokenizer)
	h.driver.Tolerant = true
	h.note()
	return nil
}

// add serves a policy, the base itself or an adapter beside it, under a name.
func (h *Host) add(name string, base *torch.Model, m *experiment.Model) error {
	if h.policies[name] != nil {
		return fmt.Errorf("two models are called %q: give one another name", name)
	}
	policy, err := m.Trains.Attach(base, torch.HeadLM, checkpoint.Ranks{})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	h.names, h.policies[name] = append(h.names, name), policy
	return nil
}

// free closes what load opened.
func (h *Host) free() {
	if h.engine != nil {
		h.engine.Close()
	}
	for _, policy := range h.policies {
		policy.Close()
	}
}

// Tokenizer is the tokenizer with the chat template.
func (h *Host) Tokenizer() *chat.Tokenizer { return h.tokenizer }

// Model says what is served.
func (h *Host) Model() Model { return h.model }

// CheckText refuses a text that can only be longer than a prompt may be, before it costs the time of encoding.
func (h *Host) CheckText(bytes int) error {
	if most := h.model.MaxLength * h.longest; bytes > most {
		return &PromptError{fmt.Sprintf("the text has %d bytes, but prompt and reply together may have %d tokens of "+
			"at most %d", bytes, h.model.MaxLength, h.longest), true}
	}
	return nil
}

// Names are those that requests can call for: the model's first, then the adapters'.
func (h *Host) Names() []string { return h.names }

// Policy is what a name stands for. An unknown one gives an [UnknownModelError].
func (h *Host) Policy(name string) (*torch.Model, error) {
	if policy := h.policies[name]; policy != nil && name != "" || h.policies == nil {
		return policy, nil // nil beside another's engine: that one's model
	}
	return nil, &UnknownModelError{name, h.names}
}

// UnknownModelError says that no model has the name that was asked for.
type UnknownModelError struct {
	Name  string
	Known []string
}

func (e *UnknownModelError) Error() string {
	return fmt.Sprintf("no model is called %.80q%s: there are %.400q", e.Name, nearest.Hint(e.Name, e.Known), e.Known)
}

// Stats is the state of the engine after its newest step.
func (h *Host) Stats() torch.EngineStats { return *h.stats.Load() }

// Unfinished counts the requests that run or wait.
func (h *Host) Unfinished() int64 { return h.asked.Load() }
