package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/internal/table"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/ranks"
	"gyre/torch"
)

// finding is one line of the doctor's report.
type finding struct {
	Check  string `json:"check"`
	Value  string `json:"value"`
	Advice string `json:"advice,omitempty"`
}

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "this machine: versions, speed, exactness, what is missing",
		Description: `gyre doctor --model models/smollm2-135m-instruct
   gyre doctor --ranks 4`,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "model", Usage: "also prove on `DIR` that sampling and training agree"},
			&cli.IntFlag{Name: "ranks", Usage: "measure what `N` processes send each other instead"},
			&cli.StringFlag{Name: "bind", Usage: "over the address or interface `NAME`, not loopback"},
			jsonFlag(),
		}, placementFlags()...),
		Action: func(c *cli.Context) error {
			if _, many, _ := ranks.Recognise(); many || c.IsSet("ranks") {
				return doctorRanks(c)
			}
			on, err := placementOf(c)
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
			findings, err := diagnose(c.String("model"), on, why)
			if err != nil {
				return err
			}
			return writeFindings(c, findings)
		},
	}
}

func writeFindings(c *cli.Context, findings []finding) error {
	if c.Bool("json") {
		return json.NewEncoder(c.App.Writer).Encode(findings)
	}
	t := table.New("check", "finding")
	for _, f := range findings {
		if t.Add(f.Check, f.Value); f.Advice != "" {
			t.Add("", f.Advice)
		}
	}
	return t.Write(c.App.Writer)
}

// diagnose examines this machine and computes on it. why is the reason for the type of the arithmetic, "" where it was
// given.
func diagnose(model string, on torch.Placement, why string) ([]finding, error) {
	var out []finding
	add := func(check, value, advice string) { out = append(out, finding{check, value, advice}) }
	add("gyre", version(), "")
	add("engine", torch.BuildInfo(), "")
	threads := fmt.Sprintf("%d of %d cores", torch.Threads(), runtime.NumCPU())
	if v := os.Getenv("GYRE_THREADS"); v != "" {
		threads += " (GYRE_THREADS=" + v + ")"
	}
	add("threads", threads, "run.threads or GYRE_THREADS changes it; results do not depend on it")
	bandwidth, flops, err := torch.Measure()
	if err != nil {
		return nil, err
	}
	add("memory bandwidth", fmt.Sprintf("%.1f GB/s", bandwidth/1e9), "")
	add("matrix products", fmt.Sprintf("%.0f GFLOP/s (f32, packed weights)", flops/1e9), "")
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
			value += " (in use)"
			advice = "GYRE_ISA chooses another"
		}
		add("kernels: "+s.Name, value, advice)
	}
	if why != "" {
		add("model.dtype = auto", fmt.Sprintf("%s, %s", on.Compute, why),
			"float32 and bfloat16 can be chosen on any machine")
	}
	add("GPUs", torch.CUDAInfo(), "")
	gap, err := experiment.ProveExact(model, on)
	if err != nil {
		return nil, fmt.Errorf("exactness test: %w", err)
	}
	if gap == 0 {
		add("sampler = trainer", "exact: log-probs agree bit for bit", "")
	} else {
		advice := "runs recompute old log-probs on this machine; please report the processor"
		if on.Device != "cpu" {
			advice = "runs recompute old log-probs on " + on.Device + "; only the CPU's kernels are exact"
		}
		add("sampler = trainer", fmt.Sprintf("log-probs differ by up to %.2g", gap), advice)
	}
	for _, tool := range []struct{ name, why string }{
		{"cmake", "builds the engine (package cmake)"}, {"go", "builds the gyre command"},
		{"python3", "downloads libtorch in make setup"},
	} {
		path, err := exec.LookPath(tool.name)
		if err != nil {
			add(tool.name, "not found", tool.why)
			continue
		}
		add(tool.name, path, "")
	}
	if strings.Contains(os.Getenv("TERM"), "dumb") || os.Getenv("NO_COLOR") != "" {
		add("terminal", "colours are off (NO_COLOR or TERM)", "")
	}
	return out, nil
}

// placementFlags say what computes the model.
func placementFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "device", Value: "cpu", Usage: "compute on `NAME`: cpu, cuda, cuda:N or aten"},
		&cli.StringFlag{Name: "dtype", Value: string(torch.ComputeAuto), Usage: "in `TYPE`: auto, float32 or bfloat16"},
	}
}

func placementOf(c *cli.Context) (torch.Placement, error) {
	p := torch.Placement{Device: c.String("device"), Compute: torch.Compute(c.String("dtype"))}
	if err := config.CheckDevice(p.Device); err != nil {
		return p, Usagef("--device: %w", err)
	}
	if err := p.Check(); err != nil {
		return p, Usagef("--dtype: %w", err)
	}
	return p, nil
}

// openThreads fixes the number of threads of a command that has --threads.
func openThreads(c *cli.Context, on torch.Placement) error {
	n := c.Int("threads")
	if n < 0 {
		return Usagef("--threads is %d, expected 0 (one per core) or more", n)
	}
	_, err := experiment.OpenMachine(n, on, func(format string, args ...any) {
		warn(c, fmt.Sprintf(format, args...))
	})
	return err
}
