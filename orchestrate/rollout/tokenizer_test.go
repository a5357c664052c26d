package rollout

import (
	"testing"

	"gyre/orchestrate/chat"
)

func tokenizer(t *testing.T) *chat.Tokenizer { return chat.NewStub() }

const eos = "<|im_end|>"
