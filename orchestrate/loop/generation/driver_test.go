package generation

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"gyre/orchestrate/model/chat/bpe"
	"gyre/torch"
)

// letters is a tokenizer of single bytes; ids from 256 on are special.
type letters struct{}

func (letters) Stream(bool) bpe.Stream { return letters{} }

func (letters) Add(id int32) []byte {
	if id >= 256 {
		return nil
	}
	return []byte{byte(id)}
}

func (letters) Finish() []byte { return nil }

func (letters) Vocabulary() [][]byte {
	all := make([][]byte, 257)
	for id := range all {
		all[id] = []byte{byte(id)}
	}
	all[256] = []byte("<|end|>")
	return all
}

// parrot is an engine that answers with the bytes of a text, one per step, and streams them.
type parrot struct {
	texts      map[uint64]string
	at, sent   map[uint64]int
	order      []uint64
	done       []torch.Output
	vocabulary int // times it was set
	aborted    []uint64
	forget     bool
	fail       error
	surprise   *torch.Output
}

func newParrot(texts ...string) *parrot {
	p := &parrot{texts: map[uint64]string{}, at: map[uint64]int{}, sent: map[uint64]int{}}
	for i, text := range texts {
		p.texts[uint64(i)] = text
	}
	return p
}

func (p *parrot) Submit(r torch.Request) error {
	if len(r.Prompt) == 0 {
		return errors.New("no prompt")
	}
	p.order = append(p.order, r.ID)
	return nil
}

func (p *parrot) output(id uint64, n int, finish torch.Finish) torch.Output {
	out := torch.Output{ID: id, Finish: finish}
	for i, b := range []byte(p.texts[id][:n]) {
		out.Tokens, out.Logprobs = append(out.Tokens, int32(b)), append(out.Logprobs, -float32(i))
	}
	return out
}

func (p *parrot) Step() (int, error) {
	if p.fail != nil {
		return 0, p.fail
	}
	if p.forget {
		return 0, nil
	}
	for _, id := range slices.Clone(p.order) {
		if p.at[id]++; p.at[id] == len(p.texts[id]) {
			p.finish(id, torch.FinishStop)
		}
	}
	return len(p.order), nil
}

func (p *parrot) finish(id uint64, why torch.Finish) {
	p.order = slices.DeleteFunc(p.order, func(o uint64) bool { return o == id })
	p.done = append(p.done, p.output(id, p.at[id], why))
}

func (p *parrot) Progress() ([]torch.Partial, error) {
	var all []torch.Partial
	for _, id := range p.order {
		out := p.output(id, p.at[id], 0)
		from := p.sent[id]
		p.sent[id] = p.at[id]
		all = append(all, torch.Partial{ID: id, Position: from, Tokens: out.Tokens[from:],
			Logprobs: out.Logprobs[from:]})
	}
	return all, nil
}

func (p *parrot) Poll() ([]torch.Output, error) {
	done := p.done
	p.done = nil
	if p.surprise != nil {
		done = append(done, *p.surprise)
	}
	return done, nil
}

func (p *parrot) Abort(id uint64) error {
	p.aborted = append(p.aborted, id)
	p.finish(id, torch.FinishAbort)
	return nil
}

func (p *parrot) SetVocabulary(v [][]byte) error {
	if len(v) != 257 {
		return errors.New("not the tokenizer's vocabulary")
	}
	p.vocabulary++
	return nil
}

func (p *parrot) TensorParallel(_ context.Context, lead func() error) error { return lead() }
func (p *parrot) Follows() bool                                             { return false }

func ask(id uint64, stops ...string) Request {
	return Request{Request: torch.Request{ID: id, Prompt: []int32{1}, StopStrings: stops}}
}

// Every reply is handed out as it grows, whole in the end.
func TestRepliesAreToldAsTheyGrow(t *testing.T) {
	texts := []string{"naïve ☃ \xe2\x98 end", "ab", ""}
	texts[2] = "z"
	d := New(newParrot(texts...), letters{})
	said, ended := make([]string, 3), make([]int, 3)
	tokens := make([][]int32, 3)
	pieces := 0
	for i := range texts {
		r := ask(uint64(i))
		if i < 2 { // nobody watches the third
			r.Grown = func(p Piece) {
				pieces++
				said[i] += p.Text
				tokens[i] = append(tokens[i], p.Tokens...)
				if p.Last {
					ended[i]++
				}
			}
		}
		if err := d.Submit(r); err != nil {
			t.Fatal(err)
		}
	}
	var order []uint64
	if err := d.Run(t.Context(), func(out torch.Output) error {
		order = append(order, out.ID)
		if len(out.Tokens) != len(texts[out.ID]) {
			t.Errorf("reply %d has %d tokens, want %d", out.ID, len(out.Tokens), len(texts[out.ID]))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if said[0] != "naïve ☃ \ufffd end" || said[1] != "ab" || !slices.Equal(ended, []int{1, 1, 0}) ||
		len(tokens[0]) != len(texts[0]) {
		t.Errorf("handed out %q, ended %v", said, ended)
	}
	if !slices.Equal(order, []uint64{2, 1, 0}) || d.Unfinished() != 0 {
		t.Errorf("finished in order %v, %d unfinished", order, d.Unfinished())
	}
	if want := len(texts[0]) + 1 + len(texts[1]) + 1; pieces != want {
		t.Errorf("%d pieces, want %d", pieces, want)
	}
}

func TestStopStringsNeedATokenizer(t *testing.T) {
	p := newParrot("a", "b")
	d := New(p, letters{})
	for id := range uint64(2) {
		if err := d.Submit(ask(id, "x")); err != nil {
			t.Fatal(err)
		}
	}
	if p.vocabulary != 1 {
		t.Errorf("the vocabulary was set %d times, want once", p.vocabulary)
	}
	if err := New(newParrot("a"), nil).Submit(ask(0, "x")); err == nil ||
		!strings.Contains(err.Error(), "needs a tokenizer") {
		t.Errorf("error %v, want one about the tokenizer", err)
	}
}

// Whatever ends a Run early, the engine is left empty and can be used again.
func TestRunLeavesNothingBehind(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		spoil func(*parrot, context.CancelFunc)
		each  error
		want  string
	}{
		"context":   {func(_ *parrot, cancel context.CancelFunc) { cancel() }, nil, "context canceled"},
		"engine":    {func(p *parrot, _ context.CancelFunc) { p.fail = broken }, nil, "broken"},
		"caller":    {nil, broken, "broken"},
		"forgotten": {func(p *parrot, _ context.CancelFunc) { p.forget = true }, nil, "forgot 2 requests"},
		"never asked of": {func(p *parrot, _ context.CancelFunc) { p.surprise = &torch.Output{ID: 9} }, nil,
			"request 9"},
	} {
		p := newParrot("a", "bcd")
		ctx, cancel := context.WithCancel(t.Context())
		d := New(p, letters{})
		for id := range uint64(2) {
			if err := d.Submit(ask(id)); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Submit(ask(1)); err == nil || !strings.Contains(err.Error(), "already") {
			t.Errorf("the same request twice: %v", err)
		}
		if c.spoil != nil {
			c.spoil(p, cancel)
		}
		err := d.Run(ctx, func(torch.Output) error { return c.each })
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
		if len(p.order) != 0 || len(p.done) != 0 || d.Unfinished() != 0 {
			t.Errorf("%s: the engine still has %v and %v, the driver %d", name, p.order, p.done, d.Unfinished())
		}
		cancel()
	}
	if err := New(newParrot("a"), nil).Submit(Request{}); err == nil {
		t.Error("a request that the engine refuses is accepted")
	}
}
