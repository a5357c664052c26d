package episode

import (
	"reflect"
	"testing"
)

// No reward of a hand-written episode is lost, wherever it was put, and turns may touch.
func TestCredit(t *testing.T) {
	e, err := Decode([]byte(`{"group": 0, "ids": [3, 4, 5, 6, 7, 8], "mask": [0, 1, 1, 0, 1, 0], "score": 7,
		"rewards": [[0, 1], [2, 2], [3, 4], [5, 8]], "turns": [[0, 1, 2], [2, 2, 3], [3, 4, 6]]}`), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := e.TokenRewards(true), []float64{0, 1, 6, 0, 8, 0}; !reflect.DeepEqual(got, want) {
		t.Errorf("per turn: %v, want %v", got, want)
	}
	if got, want := e.TokenRewards(false), []float64{0, 0, 0, 0, 7, 0}; !reflect.DeepEqual(got, want) {
		t.Errorf("whole: %v, want %v", got, want)
	}
	if got, _ := e.TurnEnds(); !reflect.DeepEqual(got, []int{1, 2, 4}) {
		want := []int{1, 2, 4}
		t.Errorf("turn ends %v, want %v", got, want)
	}
}

// A turn's state is what the environment showed, and where nobody kept that, what the policy read before its reply.
// Turns in which it said nothing have none.
func TestStatesOfTurns(t *testing.T) {
	e, err := Decode([]byte(`{"group": 0, "ids": [3, 4, 5, 3, 6, 8, 9, 7], "mask": [0, 1, 0, 0, 1, 0, 0, 1],
		"rewards": [],
		"turns": [[0, 1, 2], [2, 3, 3], [3, 4, 5], [5, 7, 8]], "states": [70, 71, 72, 70]}`), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, got := e.TurnEnds(); !reflect.DeepEqual(got, []int{70, 72, 70}) {
		t.Errorf("kept: %v", got)
	}
	line, err := Encode(e)
	again, failed := Decode(line, 0)
	if err != nil || failed != nil || !reflect.DeepEqual(again.States, e.States) {
		t.Errorf("written and read: %v, %v, %v", again, err, failed)
	}
	e.States = nil
	if _, got := e.TurnEnds(); len(got) != 3 || got[0] != got[1] || got[0] == got[2] {
		t.Errorf("of tokens: %v", got)
	}
	e.States = []uint32{1}
	if err := e.Check(); err == nil {
		t.Error("one state for four turns")
	}
}
