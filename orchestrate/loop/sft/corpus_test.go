package sft

import (
	"slices"
	"testing"

	_ "gyre/envs/builtin"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/model/checkpoint/policyinit"
)

func TestTokenizerOfTheEnvironments(t *testing.T) {
	dir := t.TempDir()
	o := policyinit.Defaults
	var err error
	if o.Corpus, err = Corpus(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := policyinit.Create(dir, o); err != nil {
		t.Fatal(err)
	}
	tok, err := chat.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if tok.VocabSize() != 512 || !slices.Equal(tok.StopIDs(), []int32{2}) || !tok.HasTemplate() {
		t.Errorf("vocabulary %d, stops at %v", tok.VocabSize(), tok.StopIDs())
	}
	reply, err := tok.EncodeOrdinary("<answer>Left || Right</answer>")
	if err != nil || len(reply) > 16 {
		t.Errorf("a reply takes %d tokens, %v", len(reply), err)
	}
	board := "#####\n#_P_#\n#####"
	cells, err := tok.EncodeOrdinary(board)
	if err != nil || len(cells) != len(board) {
		t.Errorf("a board of %d cells takes %d tokens, %v", len(board), len(cells), err)
	}
}
