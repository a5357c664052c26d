package episode

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLearnedColumnsComeBack(t *testing.T) {
	mask := []bool{false, true, true, false, true, true}
	advantages := []float32{9, 0.1, 0.1, 9, -0.3, -0.3}
	list := []Learned{{Episode: 3, Advantages: PairsOf(advantages, mask), Entropies: PairsOf([]float32{0, 0, 1, 0, 0, 2}, mask)},
		{Episode: 5}}
	path := filepath.Join(t.TempDir(), "update_7.jsonl")
	if err := WriteLearned(path, list); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	want := `{"episode":3,"advantages":[[1,0.1],[4,-0.3]],"entropies":[[1,0],[2,1],[4,0],[5,2]]}` + "\n" + `{"episode":5}` + "\n"
	if err != nil || string(data) != want {
		t.Fatalf("%s, %v", data, err)
	}
	got, err := ReadLearned(path)
	if err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	for token, v := range got[3].Advantages.Column(6) {
		if mask[token] && float32(v) != advantages[token] {
			t.Errorf("token %d has %v, want %v", token, v, advantages[token])
		}
	}
	if c := got[3].Entropies.Column(6); !slices.Equal(c, []float64{0, 0, 1, 1, 0, 2}) || got[5].Ratios.Column(6) != nil {
		t.Errorf("entropies %v", c)
	}
	if err := os.WriteFile(path, []byte("{\"episode\":1}\n{\"episode\":\"x\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadLearned(path); err == nil || !strings.Contains(err.Error(), path+":2: ") {
		t.Errorf("error %v, want one of line 2", err)
	}
}
