package scale

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/source"
)

// planned opens the first experiment of the seeds with one of configs/shapes, as `gyre train --dry-run --device h100`
// does.
func planned(t *testing.T, shape string, ranks int, overrides ...string) (Plan, *experiment.Experiment) {
	t.Helper()
	overrides = append([]string{"model.path=../../../configs/shapes/" + shape, "model.device=cuda"}, overrides...)
	c, err := config.Load("../../../configs/sokoban_ppo_filter.toml", overrides,
		experiment.CheckEnvironments(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	e, err := experiment.Open(c, source.Parts(false))
	if err != nil {
		t.Fatal(err)
	}
	m, err := Find("H100", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(e, c, ranks, m)
	if err != nil {
		t.Fatal(err)
	}
	return p, e
}

// The models' own pages say how many parameters they have with and without embeddings, in billions.
func TestMatricesArePublishedCounts(t *testing.T) {
	for shape, want := range map[string][2]float64{
		"qwen2.5-3b":  {3.09, 2.77},
		"qwen2.5-7b":  {7.61, 6.53},
		"qwen2.5-32b": {32.5, 31.0},
		"llama-3-70b": {70.6, 68.5}, // vocabulary 128,256 × 8,192, untied
	} {
		_, e := planned(t, shape, 8)
		blocks, _ := matrices(e.Policy.Shape)
		for i, got := range []float64{float64(experiment.Parameters(e.Policy.Shape)), blocks} {
			if math.Abs(got/1e9/want[i]-1) > 0.01 {
				t.Errorf("%s: %.3g billion, want %v", shape, got/1e9, want[i])
			}
		}
	}
}

// Work is shared out and none of it is lost; one rank sends nothing.
func TestRanksShareTheWork(t *testing.T) {
	for _, shard := range []string{"none", "optimizer", "full"} {
		alone, _ := planned(t, "qwen2.5-3b", 1, "fsdp.shard="+shard)
		if alone.Step.total().Sent != 0 {
			t.Errorf("%s: one rank sends %v bytes", shard, alone.Step.total().Sent)
		}
		for _, ranks := range []int{2, 8, 64} {
			many, _ := planned(t, "qwen2.5-3b", ranks, "fsdp.shard="+shard)
			if got, want := work(many.Step)*float64(ranks), work(alone.Step); math.Abs(got/want-1) > 1e-9 {
				t.Errorf("%s: %d ranks do %v operations, one does %v", shard, ranks, got, want)
			}
			if many.Step.total().Sent <= 0 || many.Step.total().Seconds >= alone.Step.total().Seconds {
				t.Errorf("%s: %d ranks send %v bytes and take %v s, one takes %v", shard, ranks, many.Step.total().Sent,
					many.Step.total().Seconds, alone.Step.total().Seconds)
			}
		}
	}
}

func work(s Step) float64 { return s.total().FLOPs }

// The last row of the printed step adds all columns up.
func TestPrintedStepAddsUp(t *testing.T) {
	p, _ := planned(t, "qwen2.5-3b", 4)
	lines := strings.Split(strings.TrimSpace(p.Step.String()), "\n")
	sums := make([]float64, 5)
	for i, line := range lines[2:] {
		fields := strings.Fields(line)
		for k, field := range fields[len(fields)-5:] {
			v, err := strconv.ParseFloat(field, 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if i < len(lines)-3 {
				sums[k] += v
			} else if v == 0 || math.Abs(v/sums[k]-1) > 0.01 { // of printed digits
				t.Errorf("column %d adds up to %v, the last row says %v", k, sums[k], v)
			}
		}
	}
}

// auto takes the least sharing that fits, and the plan is that of it.
func TestPlanChoosesTheSharing(t *testing.T) {
	for ranks, want := range map[int]string{1: "none", 4: "full", 8: "full"} {
		p, _ := planned(t, "qwen2.5-3b", ranks)
		named, _ := planned(t, "qwen2.5-3b", ranks, "fsdp.shard="+want)
		if p.Shard != want || p.Memory.Peak() != named.Memory.Peak() || p.Step.total().Sent != named.Step.total().Sent {
			t.Errorf("%d ranks: %s, want the plan of %s", ranks, p.Shard, want)
		}
		if said := strings.Contains(p.String(), "fsdp.shard = \"auto\": "+want); said != (ranks > 1) {
			t.Errorf("%d ranks:\n%s", ranks, p)
		}
	}
}

// (n-1)/n of what is gathered or reduced goes to others: weights and gradients with shards, weights once more but for
// the root and the last block; sums and what comes back without.
func TestBytesBetweenRanks(t *testing.T) {
	sent := func(p Plan, phase string) float64 {
		for _, x := range p.Step.Phases {
			if x.Name == phase {
				return x.Sent
			}
		}
		t.Fatalf("no phase %q", phase)
		return 0
	}
	const ranks = 8
	// of 128 episodes: one step of one micro-batch
	one := []string{"actor.mini_batch=128", "actor.epochs=1", "actor.micro_batch_tokens=1000000"}
	full, e := planned(t, "qwen2.5-3b", ranks, append(one, "fsdp.shard=full")...)
	weights := 4 * float64(experiment.Parameters(e.Policy.Shape))
	none, _ := planned(t, "qwen2.5-3b", ranks, append(one, "fsdp.shard=none")...)
	narrow, _ := planned(t, "qwen2.5-3b", ranks, append(one, "fsdp.shard=full", "fsdp.wire_dtype=bfloat16")...)
	copies, _ := planned(t, "qwen2.5-3b", ranks, append(one, "fsdp.shard=full", "fsdp.replicas=4")...)
	root, block := units(e.Policy.Shape)
	if got, want := root+36*block, weights/4; math.Abs(got/want-1) > 1e-12 || root < 151936*2048 ||
		root > 151936*2048*1.001 {
		t.Fatalf("a root of %v and blocks of %v parameters, %v in all, want %v", root, block, got, want)
	}
	gone := 3*weights - 4*(root+block)
	for name, c := range map[string][2]float64{
		"full": {sent(full, "actor update"), gone * (ranks - 1) / ranks},
		// Four copies on two ranks each: a rank hands the sum of its half to the three others that have this half.
		"copies":   {sent(copies, "actor update"), gone/2 + 3*weights/2},
		"sampling": {sent(full, "weights for sampling"), weights * (ranks - 1) / ranks},
		"none":     {sent(none, "actor update"), 2 * weights * (ranks - 1) / ranks},
		"narrow":   {sent(narrow, "actor update"), gone / 2 * (ranks - 1) / ranks},
	} {
		if math.Abs(c[0]/c[1]-1) > 1e-9 {
			t.Errorf("%s: %v bytes, want %v", name, c[0], c[1])
		}
	}
	if full.Memory.Peak() >= none.Memory.Peak() {
		t.Errorf("shards take %d bytes, copies %d", full.Memory.Peak(), none.Memory.Peak())
	}
}

func TestDevicesByName(t *testing.T) {
	if _, err := Find("h10O", 1, 0); err == nil || !strings.Contains(err.Error(), "h100") ||
		!strings.Contains(err.Error(), "expected one of") {
		t.Errorf("got %v, want the names that there are", err)
	}
	if m, err := Find("A100-40GB", 1, 0); err != nil || m.Memory != 40*gib || m.Name != "a100-40gb" {
		t.Errorf("got %+v, %v", m, err)
	}
}
