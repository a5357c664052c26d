package experiment

import (
	"bytes"
	"fmt"
	"slices"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/model/chat"
	"gyre/torch"
)

// OpenDraft reads what a directory, "" for none, says of a model that is to propose tokens for the engine of policy m.
// Its tokens have to be the policy's, of which tokenizer tells; nil where no text plays a part.
func (m *Model) OpenDraft(dir string, tokenizer *chat.Tokenizer) (*Model, error) {
	if dir == "" {
		return nil, nil
	}
	on := m.Shape.Placement
	on.Frozen = true
	draft, err := OpenModel(dir, torch.HeadLM, on)
	if err != nil {
		return nil, fmt.Errorf("the draft: %w", err)
	}
	if have, want := draft.Shape.VocabSize, m.Shape.VocabSize; have != want {
		return nil, fmt.Errorf("the draft %s has a vocabulary of %d tokens, but the policy in %s one of %d: expected a "+
			"model with the policy's tokenizer", dir, have, m.Dir, want)
	}
	if tokenizer == nil || !atomicfile.Exists(dir, "tokenizer.json") {
		return draft, nil
	}
	own, err := chat.Load(dir)
	if err != nil {
		return nil, fmt.Errorf("the draft's tokenizer: %w", err)
	}
	if !slices.EqualFunc(own.Vocabulary(), tokenizer.Vocabulary(), bytes.Equal) {
		return nil, fmt.Errorf("the draft %s has another tokenizer than the policy in %s: expected the same tokens", dir,
			m.Dir)
	}
	return draft, nil
}

// NewEngine makes an engine that holds the weights of a draft; nil for none. A rank whose engine follows another's
// proposes nothing.
func NewEngine(policy *torch.Model, own torch.EngineConfig, draft *Model) (*torch.Engine, error) {
	engine, err := torch.NewEngine(policy, own)
	if err != nil || draft == nil || engine.Follows() {
		return engine, err
	}
	weights, _, err := draft.Load()
	if err == nil {
		defer weights.Close()
		err = engine.SetDraft(weights)
	}
	if err != nil {
		engine.Close()
		return nil, fmt.Errorf("the draft: %w", err)
	}
	return engine, nil
}
