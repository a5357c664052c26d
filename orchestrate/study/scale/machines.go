// Package scale predicts what a run takes on machines that need not be there: memory of every rank (package
// experiment's plan), bytes between ranks, and seconds per phase of a step, from the shapes of the models, the
// configuration and the figures of a device.
//
//	machines.go  known devices, and this machine as it is measured
//	step.go      the phases of a step: work, time, and what ranks send each other
//	advice.go    what does not fit, and which setting would mend it
//
// The formulas, and how far measured runs are from them, are in docs/scale.md.
package scale

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gyre/internal/nearest"
	"gyre/torch"
)

// Machine is what one rank computes on.
type Machine struct {
	Name      string
	Memory    int64   // bytes; 0 = not known
	FLOPs     float64 // peak of matrix products in the type they are computed in, per second; 0 = not known
	Bandwidth float64 // bytes of memory per second; 0 = not known
	Link      float64 // bytes per second that a rank sends to others of its node
	Network   float64 // and to other nodes
	PerNode   int     // ranks of a node
	Bytes     int64   // of a weight in matrix products

	// Shares of the peaks that are reached: of FLOPs in training and in reading prompts, of Bandwidth in drawing
	// tokens, of Link and Network.
	Train, Prefill, Decode, Wire float64
}

const (
	giga = 1e9
	gib  = 1 << 30
)

// gpu fills in what is assumed of every GPU until somebody measures it.
func gpu(memory int64, tflops, gbytes, link, network float64, perNode int) Machine {
	return Machine{Memory: memory * gib, FLOPs: tflops * 1e12, Bandwidth: gbytes * giga, Link: link * giga,
		Network: network * giga, PerNode: perNode, Bytes: 2,
		Train: 0.35, Prefill: 0.4, Decode: 0.5, Wire: 0.7}
}

// machines are vendors' figures: dense bfloat16 products, memory, one direction of NVLink (or PCIe), and the network
// card that usually belongs to a GPU.
var machines = map[string]Machine{
	"a100-40gb": gpu(40, 312, 1555, 300, 25, 8),
	"a100":      gpu(80, 312, 2039, 300, 25, 8),
	"h100":      gpu(80, 989, 3350, 450, 50, 8),
	"h200":      gpu(141, 989, 4800, 450, 50, 8),
	"b200":      gpu(180, 2250, 8000, 900, 50, 8),
	"l40s":      gpu(48, 362, 864, 32, 25, 8),
	"rtx4090":   gpu(24, 165, 1008, 25, 12.5, 8),
}

// Names of the known devices.
func Names() []string { return append(slices.Sorted(maps.Keys(machines)), "here") }

// Find gives a device by its name; "here" measures this machine's CPU as one of so many ranks on it.
func Find(name string, ranksHere int, memory int64) (Machine, error) {
	if strings.ToLower(name) == "here" {
		bandwidth, flops, err := torch.Measure(torch.ComputeF32)
		if err != nil {
			return Machine{}, fmt.Errorf("measuring this machine: %w", err)
		}
		m, n := Here(ranksHere, memory), float64(max(ranksHere, 1))
		m.FLOPs, m.Bandwidth = flops/n, bandwidth/n
		return m, nil
	}
	m, ok := machines[strings.ToLower(name)]
	if !ok {
		return m, fmt.Errorf("no device %q is known%s: expected one of %s (here: this machine, measured)", name,
			nearest.Hint(name, Names()), strings.Join(Names(), ", "))
	}
	m.Name = strings.ToLower(name)
	return m, nil
}

// Here is this machine's CPU as one of so many ranks on it, before its speed is measured: for plans of memory.
func Here(ranksHere int, memory int64) Machine {
	n := max(ranksHere, 1)
	return Machine{Name: "here", Memory: memory / int64(n), Link: loopback * giga, Network: loopback * giga,
		PerNode: n, Bytes: 4, Train: 0.5, Prefill: 0.7, Decode: 0.5, Wire: 1}
}

// loopback is what two ranks of one machine send each other over Gloo, in GB/s.
const loopback = 1.0
