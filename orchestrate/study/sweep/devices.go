package sweep

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"gyre/internal/settings"
)

// slot is a place for one run at a time.
type slot struct {
	devices []string
	threads int
	label   string // what the devices are
}

// deal shares devices and threads among the slots.
func (s *Study) deal() ([]slot, error) {
	each, have := max(s.DevicesPerRun, 1), len(s.Devices)
	n := max(cmp.Or(s.Slots, have/each), 1)
	switch {
	case have == 0:
	case have < each:
		return nil, fmt.Errorf("%w: a run needs %d devices, and there are %d", settings.ErrInvalid, each, have)
	case n*each > have:
		return nil, fmt.Errorf("%w: %d slots of %d devices need %d, and there are %d", settings.ErrInvalid, n, each,
			n*each, have)
	}
	threads := cmp.Or(s.ThreadsPerRun, max(1, runtime.NumCPU()/n))
	out := make([]slot, n)
	for i := range out {
		out[i].threads = threads
		if have > 0 {
			out[i].devices = s.Devices[i*each : (i+1)*each]
		}
	}
	return out, nil
}

var (
	gpuLine    = regexp.MustCompile(`(?m)^GPU (\d+): (.*?)(?: \(UUID.*)?$`)
	gpuModel   = regexp.MustCompile(`\b([BHAL]\d{2,3}S?|V100|T4|P100|K80)\b`)
	gpuVendors = regexp.MustCompile(`^((NVIDIA|Tesla|GeForce|Quadro) )+`)
)

// deviceLabels says what each slot computes on, such as 4xH100, 2xmixed, 1xGPU3 where nvidia-smi does not know it, or
// 1xCPU.
func deviceLabels(ctx context.Context, slots []slot) []string {
	names := map[string]string{}
	if len(slots[0].devices) > 0 {
		listed, _ := exec.CommandContext(ctx, "nvidia-smi", "-L").Output() // without it devices keep their numbers
		for _, m := range gpuLine.FindAllStringSubmatch(string(listed), -1) {
			names[m[1]] = gpuName(m[2])
		}
	}
	labels := make([]string, len(slots))
	for i, place := range slots {
		var models []string
		for _, id := range place.devices {
			name, ok := names[id]
			if !ok {
				name = "GPU" + id
			}
			models = append(models, name)
		}
		different := slices.Compact(slices.Sorted(slices.Values(models)))
		switch len(different) {
		case 0:
			labels[i] = "1xCPU"
		case 1:
			labels[i] = fmt.Sprintf("%dx%s", len(models), different[0])
		default:
			labels[i] = fmt.Sprintf("%dxmixed", len(models))
		}
	}
	return labels
}

// gpuName shortens what nvidia-smi calls a device.
func gpuName(name string) string {
	if model := gpuModel.FindString(name); model != "" {
		return model
	}
	first, _, _ := strings.Cut(gpuVendors.ReplaceAllString(name, ""), " ")
	return first
}
