package cli

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"github.com/urfave/cli/v2"

	"gyre/internal/table"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/ranks"
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
		Name:  "doctor",
		Usage: "this machine: versions, speed, exactness, what is missing",
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
	bandwidth, flops, err := torch.Measure()
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
	gap, err := experiment.ProveExact(model, on)
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
