package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"github.com/urfave/cli/v2"

	"gyre/internal/table"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// findings is the doctor's report.
type findings []finding

type finding struct {
	Check  string `json:"check"`
	Value  string `json:"value"`
	Advice string `json:"advice,omitempty"`
}

func (f *findings) add(check, value, advice string) { *f = append(*f, finding{check, value, advice}) }

// programs says where each is, or what is to be done without it.
func (f *findings) programs(list ...[2]string) {
	for _, p := range list {
		if path, err := exec.LookPath(p[0]); err == nil {
			f.add(p[0], path, "")
		} else {
			f.add(p[0], "not found", p[1])
		}
	}
}

func (f findings) write(c *cli.Context) error {
	if c.Bool("json") {
		return lines(c.App.Writer).Encode(f)
	}
	t := table.New("check", "finding")
	for _, x := range f {
		if t.Add(x.Check, x.Value); x.Advice != "" {
			t.Add("", x.Advice)
		}
	}
	return t.Write(c.App.Writer)
}

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name: "doctor", Usage: "this machine: versions, speed, exactness, what is missing",
		Flags: []cli.Flag{
			text("model", "also prove on `DIR` that sampling and training agree"),
			atLeast(1, "ranks", 0, "measure what `N` processes send each other instead"),
			text("bind", "over the address or interface `NAME`, not loopback"),
			jsonFlag(), deviceFlag(), dtypeFlag(),
		},
		Action: func(c *cli.Context) error {
			if _, many, _ := ranks.Recognise(); many || c.IsSet("ranks") {
				return doctorRanks(c)
			}
			on, err := placement(c)
			if err != nil {
				return err
			}
			if err := openThreads(c, on); err != nil {
				return err
			}
			on, why, err := experiment.Settle(on, c.String("model"))
			if err != nil {
				return err
			}
			found, err := diagnose(c.String("model"), on, why)
			if err != nil {
				return err
			}
			return found.write(c)
		},
	}
}

// diagnose examines this machine and computes on it. why is the reason for the type of the arithmetic, "" where it was
// given.
func diagnose(model string, on torch.Placement, why string) (out findings, err error) {
	out.add("gyre", version(), "")
	out.add("engine", torch.BuildInfo(), "")
	threads := fmt.Sprintf("%d of %d cores", torch.Threads(), runtime.NumCPU())
	if v := os.Getenv("GYRE_THREADS"); v != "" {
		threads += " (GYRE_THREADS=" + v + ")"
	}
	out.add("threads", threads, "run.threads or GYRE_THREADS changes it; results do not depend on it")
	bandwidth, flops, err := torch.Measure(torch.ComputeF32)
	if err != nil {
		return nil, err
	}
	out.add("memory bandwidth", fmt.Sprintf("%.1f GB/s", bandwidth/1e9), "")
	out.add("matrix products", fmt.Sprintf("%.0f GFLOP/s (f32, packed weights)", flops/1e9), "")
	sets, err := torch.InstructionSets()
	if err != nil {
		return nil, err
	}
	for _, s := range sets {
		value, advice := "not on this processor", ""
		if s.RunsHere {
			value = fmt.Sprintf("%.0f GFLOP/s in float32, %.0f in bfloat16", s.Float32/1e9, s.BFloat16/1e9)
		}
		if s.InUse {
			value, advice = value+" (in use)", "GYRE_ISA chooses another"
		}
		out.add("kernels: "+s.Name, value, advice)
	}
	if why != "" {
		out.add("model.dtype = auto", fmt.Sprintf("%s, %s", on.Compute, why),
			"float32 and bfloat16 can be chosen on any machine")
	}
	out.add("GPUs", torch.CUDAInfo(), "")
	gap, err := session.ProveExact(model, on)
	switch {
	case err != nil:
		return nil, fmt.Errorf("exactness test: %w", err)
	case gap == 0:
		out.add("sampler = trainer", "exact: log-probs agree bit for bit", "")
	case on.Device != "cpu":
		out.add("sampler = trainer", fmt.Sprintf("log-probs differ by up to %.2g", gap),
			"runs recompute old log-probs on "+on.Device+"; only the CPU's kernels are exact")
	default:
		out.add("sampler = trainer", fmt.Sprintf("log-probs differ by up to %.2g", gap),
			"runs recompute old log-probs on this machine; please report the processor")
	}
	out.programs([2]string{"cmake", "builds the engine (package cmake)"}, [2]string{"go", "builds the gyre command"},
		[2]string{"python3", "downloads libtorch in make setup"})
	return out, nil
}

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
		if world.Size() == 1 {
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
		HeadDim: width, MaxPositions: 16, RMSNormEps: 1e-5, RopeTheta: 1e4, TieEmbeddings: true,
		Placement: on}
	model, err := torch.NewShardedModel(shape, world.Group(), torch.ShardConfig{Shard: torch.ShardNone})
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
		if err := world.Group().Barrier(ctx); err != nil {
			return err
		}
		before := world.Group().Traffic()
		if _, err := optimizer.Step(sum, 0, 0); err != nil {
			return err
		}
		after := world.Group().Traffic()
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
