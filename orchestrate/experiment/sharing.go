package experiment

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"

	"gyre/orchestrate/config"
	"gyre/torch"
)

// Spare is the part of a device's memory that is left to what nobody plans: fragments, the driver, the network's
// buffers.
const Spare = 0.08

// Fits reports whether a device with so many bytes of memory holds a plan; one whose memory is not known (0) does.
func (p MemoryPlan) Fits(memory int64) bool {
	return memory == 0 || float64(p.Peak()) <= float64(memory)*(1-Spare)
}

// AutoShard is the value of fsdp.shard that leaves the choice to the memory plan.
const AutoShard = "auto"

// ErrTooLarge means that a rank's device cannot hold its part of an experiment, whatever the ranks share out.
var ErrTooLarge = errors.New("no sharding fits")

// LeastSharing is the experiment over so many ranks, each with so much memory, with fsdp.shard chosen where the
// configuration says auto: the first of none, optimizer and full that fits. Where none does the error matches
// ErrTooLarge and has the numbers, and the experiment is that with full. A GPU whose memory is not known (0) is taken
// to be small.
func (e *Experiment) LeastSharing(ranks int, memory int64) (*Experiment, error) {
	if e.Config.FSDP.Shard != AutoShard {
		return e.With(e.Config, ranks), nil
	}
	modes := []string{torch.ShardNone, torch.ShardOptimizer, torch.ShardFull}
	switch {
	case ranks <= 1:
		modes = modes[:1]
	case memory == 0 && onGPU(e.Config):
		modes = modes[2:]
	}
	var chosen *Experiment
	var needs []string
	for _, mode := range modes {
		own := *e.Config
		own.FSDP.Shard = mode
		chosen = e.With(&own, ranks)
		plan := chosen.PlanMemory()
		if plan.Fits(memory) || ranks <= 1 {
			return chosen, nil
		}
		needs = append(needs, fmt.Sprintf("%.1f GiB with %s", gibibytes(plan.Peak()), mode))
	}
	return chosen, fmt.Errorf("fsdp.shard = \"auto\": %w: each of %d ranks needs %s, and has %.1f GiB, of which "+
		"%.0f%% is left alone: take more ranks, lower actor.micro_batch_tokens or engine.kv_mib, set "+
		"actor.recompute_activations = true, or name fsdp.shard to try it nevertheless", ErrTooLarge, ranks,
		strings.Join(needs, ", "),
		gibibytes(memory), 100*Spare)
}

func gibibytes(bytes int64) float64 { return float64(bytes) / (1 << 30) }

func onGPU(c *config.Config) bool { return strings.HasPrefix(c.Model.Device, "cuda") }

// RankMemory is what a rank may fill of its device: of the GPU that model.device names, as nvidia-smi tells, or its
// part of this machine's memory, which so many ranks share. 0 where that is not known.
func RankMemory(c *config.Config, ranksHere int) int64 {
	if !onGPU(c) {
		return Memory() / int64(max(ranksHere, 1))
	}
	_, number, _ := strings.Cut(c.Model.Device, ":")
	device, _ := strconv.Atoi(number)
	name := strconv.Itoa(device)
	if visible := strings.Split(os.Getenv("CUDA_VISIBLE_DEVICES"), ","); visible[0] != "" {
		if device >= len(visible) {
			return 0
		}
		name = visible[device]
	}
	out, err := exec.Command("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits", "-i",
		name).Output()
	if err != nil {
		return 0
	}
	mib, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		return 0
	}
	return mib << 20
}

// Memory is what this process may fill: the machine's memory or its control group's limit, whichever is less;
// 0 when neither can be read (on other systems than Linux).
func Memory() int64 {
	memory := int64(0)
	if system, err := procfs.NewDefaultFS(); err == nil {
		if info, err := system.Meminfo(); err == nil && info.MemTotalBytes != nil {
			memory = int64(*info.MemTotalBytes)
		}
	}
	if data, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		limit, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64) // "max" when there is none
		if err == nil && (memory == 0 || limit < memory) {
			memory = limit
		}
	}
	return memory
}
