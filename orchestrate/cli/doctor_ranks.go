package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// doctorRanks measures what ranks of this machine send each other, and says which launchers are here.
func doctorRanks(c *cli.Context) error {
	cfg := &config.Config{FSDP: config.FSDP{Shard: "none", Replicas: 1, Lanes: 4, Timeout: 120, Bind: c.String("bind")},
		Run: config.Run{Output: "."}}
	on, err := placement(c)
	if err != nil {
		return err
	}
	cfg.Model.Device = on.Device
	return overRanks(c, cfg, "", func(ctx context.Context, world *ranks.World, _ *metrics.Console) error {
		on.Device = cfg.Model.Device // this rank's GPU
		if world == nil {
			return Usagef("--ranks needs 2 or more: one rank sends nothing")
		}
		var out findings
		out.add("ranks", fmt.Sprintf("%d, started by %s", world.Size(), world.Launcher), "")
		for _, mib := range []int{1, 16, 64} {
			if err := out.bandwidth(ctx, world, on, mib); err != nil {
				return err
			}
		}
		if !world.Writes() {
			return nil
		}
		out.programs([2]string{"torchrun", "pip install torch"}, [2]string{"mpirun", "apt install openmpi-bin"},
			[2]string{"srun", "a cluster's; apt install slurm-wlm munge for one machine"})
		return out.write(c)
	})
}

// repeats of a measurement, of which the fastest counts: others only disturb.
const repeats = 5

// bandwidth times what an update sends, on a model of so many bytes of weights: gradients to their owners, added up
// there (reduce-scatter), the owners' parts to everyone (all-gather), and both (all-reduce). Bytes are those of the
// whole.
func (f *findings) bandwidth(ctx context.Context, world *ranks.World, on torch.Placement, mib int) (err error) {
	const width = 64
	shape := torch.ModelConfig{Family: torch.Llama, VocabSize: int64(mib << 20 / 4 / width), HiddenSize: width,
		IntermediateSize: width, NumLayers: 1, NumHeads: 1, NumKVHeads: 1,
		HeadDim: width, MaxPositions: 16, RMSNormEps: 1e-5, RopeTheta: 1e4, RopeFactor: 1, TieEmbeddings: true,
		Placement: on}
	model, err := torch.NewShardedModel(shape, world.Data(), torch.ShardConfig{Shard: torch.ShardNone})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, model.Close()) }()
	optimizer, err := torch.NewOptimizer(model, torch.AdamW{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8})
	if err != nil {
		return err
	}
	defer optimizer.Close()
	sum, err := torch.NewGradients(model)
	if err != nil {
		return err
	}
	defer sum.Close()
	own, err := torch.NewOwnGradients(model)
	if err != nil {
		return err
	}
	defer own.Close()
	var best [3]float64
	for range repeats {
		if err := errors.Join(sum.Zero(), sum.Add(own, 1)); err != nil {
			return err
		}
		if err := world.Data().Barrier(ctx); err != nil {
			return err
		}
		before := world.Data().Traffic()
		if _, err := optimizer.Step(sum, 0, 0); err != nil {
			return err
		}
		after := world.Data().Traffic()
		scatter := (after[torch.CargoGradients].Waited - before[torch.CargoGradients].Waited).Seconds()
		gather := (after[torch.CargoWeights].Waited - before[torch.CargoWeights].Waited).Seconds()
		for i, seconds := range []float64{scatter, gather, scatter + gather} {
			if seconds, err = world.Max(ctx, seconds); err != nil {
				return err
			}
			best[i] = max(best[i], float64(mib<<20)/max(seconds, 1e-9))
		}
	}
	for i, name := range []string{"reduce-scatter", "all-gather", "all-reduce"} {
		f.add(fmt.Sprintf("%s of %d MiB", name, mib), fmt.Sprintf("%.2f GB/s", best[i]/1e9), "")
	}
	return nil
}
