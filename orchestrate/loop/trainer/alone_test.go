package trainer

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/orchestrate/run/metrics"
)

// sockets of this process.
func sockets(t *testing.T) (n int) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if target, err := os.Readlink(f); err == nil && strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}

// A process alone trains all its models, analyses its gradients and writes its checkpoints without a process group,
// whatever the configuration says of ranks. A collective that is called nevertheless panics.
func TestAProcessAloneCommunicatesWithNobody(t *testing.T) {
	for name, over := range map[string][]string{
		"as it comes": nil,
		"in shards":   {"fsdp.shard=full", "fsdp.replicas=2", "fsdp.prefetch=2"},
		"with lanes":  {"fsdp.shard=full", "fsdp.deterministic=true", "fsdp.lanes=4"},
	} {
		t.Run(name, func(t *testing.T) {
			before := sockets(t)
			run := given(t, twoGroups, append(over, "algorithm.advantage=gae", "algorithm.kl_coef=0.1",
				"analysis.enabled=true", "run.save_every=1", "actor.lr=0.001")...)
			if run.World.Size() != 1 || run.World.Group() != nil {
				t.Fatalf("a world of %d with the group %v", run.World.Size(), run.World.Group())
			}
			for who, l := range map[string]interface{ InStep() bool }{"policy": run.Actor, "critic": run.Critic,
				"reference": run.Reference} {
				if l.InStep() {
					t.Errorf("passes of the %s wait for others", who)
				}
			}
			if sharded := run.Actor.Model.Sharded(); sharded != (name == "with lanes") || run.Actor.Model.Group() != nil {
				t.Errorf("sharded: %v, group %v", sharded, run.Actor.Model.Group())
			}
			outcome, err := run.Run(context.Background())
			if err != nil || outcome.Steps != 2 || run.Actor.Optimizer.Steps() != 4 {
				t.Fatalf("%+v, %d optimizer steps, %v", outcome, run.Actor.Optimizer.Steps(), err)
			}
			if after := sockets(t); after != before {
				t.Errorf("%d sockets, before the run %d", after, before)
			}
			for record, err := range metrics.Read(filepath.Join(run.Dir.Path, metrics.File)) {
				if err != nil {
					t.Fatal(err)
				}
				for _, key := range []string{"perf/comm_share", "perf/comm_sent_gb"} {
					if v, found := record.Values[key]; found {
						t.Errorf("step %d: %s = %v", record.Step, key, v)
					}
				}
			}
		})
	}
}
