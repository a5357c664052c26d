package experiment

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/orchestrate/config"
)

func openedShape(t *testing.T, overrides ...string) *Experiment {
	t.Helper()
	overrides = append([]string{"model.path=../../configs/shapes/qwen2.5-3b", "model.device=cuda"}, overrides...)
	c, err := config.Load("../../configs/sokoban_ppo_filter.toml", overrides, CheckEnvironments(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	e, err := Open(c, Parts{Learn: true, Critic: true, Reference: true, Analyse: true})
	if err != nil {
		t.Fatal(err)
	}
	e.Parts.Play = true
	return e
}

// With less memory more is shared, and never more than is needed; where nothing helps the numbers are named.
func TestLeastSharing(t *testing.T) {
	e := openedShape(t)
	needs := map[string]int64{}
	for _, mode := range []string{"none", "optimizer", "full"} {
		needs[mode] = openedShape(t, "fsdp.shard="+mode).With(openedShape(t, "fsdp.shard="+mode).Config,
			4).PlanMemory().Peak()
	}
	if !(needs["none"] > needs["optimizer"] && needs["optimizer"] > needs["full"]) {
		t.Fatalf("4 ranks need %v", needs)
	}
	enough := func(mode string) int64 { return int64(float64(needs[mode])/(1-Spare)) + 1<<20 }
	for mode := range needs {
		got, err := e.LeastSharing(4, enough(mode))
		if err != nil || got.Config.FSDP.Shard != mode || got.PlanMemory().Peak() != needs[mode] {
			t.Errorf("with what %s needs: %v, %v", mode, got.Config.FSDP.Shard, err)
		}
	}
	_, err := e.LeastSharing(4, enough("full")/2)
	if !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
	for mode, bytes := range needs {
		if want := fmt.Sprintf("%.1f GiB with %s", gibibytes(bytes), mode); !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	for _, x := range []struct {
		e      *Experiment
		ranks  int
		memory int64
		want   string
	}{
		{e, 1, 1, "none"}, // one process shares nothing, and is warned elsewhere
		{e, 4, 0, "full"}, // of a GPU that is not known
		{openedShape(t, "model.device=cpu"), 4, 0, "none"},
		{openedShape(t, "fsdp.shard=optimizer"), 4, 1, "optimizer"}, // as the user says
	} {
		if got, err := x.e.LeastSharing(x.ranks, x.memory); err != nil || got.Config.FSDP.Shard != x.want {
			t.Errorf("%d ranks with %d bytes: %v, want %s", x.ranks, x.memory, err, x.want)
		}
	}
	if e.Config.FSDP.Shard != AutoShard {
		t.Error("the caller's configuration was changed")
	}
}

// A rank's GPU is the one of its number among those that are visible; the ranks of a machine share its memory.
func TestRankMemory(t *testing.T) {
	bin := t.TempDir()
	script := "#!/bin/sh\ncase $4 in 2) echo 81559 ;; 5) echo 40960 ;; *) echo \"no device $4\"; exit 6 ;; esac\n"
	if err := os.WriteFile(filepath.Join(bin, "nvidia-smi"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	for _, x := range []struct {
		device, visible string
		want            int64
	}{
		{"cuda:2", "", 81559 << 20}, {"cuda", "5,2", 40960 << 20}, {"cuda:1", "5,2", 81559 << 20}, {"cuda:2", "5,2",
			0}, {"cuda:3", "", 0},
	} {
		t.Setenv("CUDA_VISIBLE_DEVICES", x.visible)
		if got := RankMemory(&config.Config{Model: config.Model{Device: x.device}}, 4); got != x.want {
			t.Errorf("%s of %q: %d, want %d", x.device, x.visible, got, x.want)
		}
	}
	cpu := &config.Config{Model: config.Model{Device: "cpu"}}
	if whole, part := RankMemory(cpu, 1), RankMemory(cpu, 4); part != whole/4 {
		t.Errorf("4 ranks of a machine with %d bytes have %d each", whole, part)
	}
}
