package cli

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/urfave/cli/v2"

	"gyre/orchestrate/config"
	"gyre/orchestrate/metrics"
	"gyre/orchestrate/ranks"
	"gyre/torch"
)

// doctorRanks measures what ranks of this machine send each other, and says which launchers are here.
func doctorRanks(c *cli.Context) error {
	cfg := &config.Config{FSDP: config.FSDP{Shard: "none", Replicas: 1, Lanes: 4, Timeout: 120, Bind: c.String("bind")}, Run: config.Run{Output: "."}}
	return overRanks(c, cfg, "", func(ctx context.Context, world *ranks.World, _ *metrics.Console) error {
		var out []finding
		if world == nil {
			return Usagef("--ranks needs 2 or more: one rank sends nothing")
		}
		out = append(out, finding{"ranks", fmt.Sprintf("%d, started by %s", world.Size(), world.Launcher), ""})
		for _, mib := range []int{1, 16, 64} {
			found, err := bandwidth(ctx, world, mib<<20)
			if err != nil {
				return err
			}
			out = append(out, found...)
		}
		for _, x := range []struct{ program, advice string }{
			{"torchrun", "pip install torch"}, {"mpirun", "apt install openmpi-bin"}, {"srun", "a cluster's; apt install slurm-wlm munge for one machine"},
		} {
			if path, err := exec.LookPath(x.program); err == nil {
				out = append(out, finding{x.program, path, ""})
			} else {
				out = append(out, finding{x.program, "not found: runs start with --ranks, or with another launcher", x.advice})
			}
		}
		if !world.Writes() {
			return nil
		}
		return writeFindings(c, out)
	})
}

// repeats of a measurement, of which the fastest counts: others only disturb.
const repeats = 5

// bandwidth times the collectives on so many bytes in all, as bytes of the whole over the time.
func bandwidth(ctx context.Context, world *ranks.World, bytes int) ([]finding, error) {
	group, n := world.Data(), world.Size()
	part, numbers := make([]byte, bytes/n), make([]float64, bytes/8)
	var out []finding
	for _, x := range []struct {
		name string
		do   func() error
	}{
		{"all-gather", func() error { _, err := group.AllGather(ctx, part); return err }},
		{"all-reduce", func() error { return group.AllReduce(ctx, numbers, torch.Sum) }},
	} {
		best := 0.0
		for range repeats {
			if err := group.Barrier(ctx); err != nil {
				return nil, err
			}
			begin := time.Now()
			if err := x.do(); err != nil {
				return nil, err
			}
			seconds, err := world.Max(ctx, time.Since(begin).Seconds())
			if err != nil {
				return nil, err
			}
			best = max(best, float64(bytes)/seconds)
		}
		out = append(out, finding{fmt.Sprintf("%s of %d MiB", x.name, bytes>>20), fmt.Sprintf("%.2f GB/s", best/1e9), ""})
	}
	return out, nil
}
