package report

import (
	"fmt"
	"strings"
)

// rankFloor is the least share of one process's speed that as many ranks as it has threads must reach, with nothing in shards.
const rankFloor = 0.85

// Ranks is what it costs to share an update out to ranks of one thread each.
type Ranks struct {
	Threads int       `json:"threads"`
	Modes   []Sharing `json:"modes"`
}

// Sharing is one mode of fsdp.shard: update tokens per second of one process and of the ranks, run by run in turns, and the share of a step in which a rank
// waited for others.
type Sharing struct {
	Shard  string    `json:"shard"`
	One    []float64 `json:"one"`
	Many   []float64 `json:"many"`
	Waited []float64 `json:"waited"`
}

// efficiency is the speed of the ranks over that of one process, run by run.
func (s Sharing) efficiency() Spread {
	ratios := make([]float64, min(len(s.One), len(s.Many)))
	for i := range ratios {
		ratios[i] = s.Many[i] / s.One[i]
	}
	return spread(ratios)
}

func (r *Report) ranks(b *strings.Builder) {
	if r.Ranks == nil {
		return
	}
	t := table{texts: 1, header: []string{"fsdp.shard", "one process", "ranks", "ranks ÷ one process", "floor", "waiting (perf/comm_share)"}}
	for _, s := range r.Ranks.Modes {
		e, floor := s.efficiency(), ""
		if s.Shard == "none" {
			floor = verdict(rankFloor, e.Median >= rankFloor, "≥")
		}
		t.add(s.Shard, number(median(s.One)), number(median(s.Many)), fmt.Sprintf("%.2f (%.2f … %.2f)", e.Median, e.Min, e.Max), floor,
			fmt.Sprintf("%.0f %%", 100*median(s.Waited)))
	}
	fmt.Fprintf(b, "\n### Ranks\n\nUpdate tokens/s on 8 sequences of 256 tokens: one process of %d threads and as many ranks of one thread, in turns.\n\n%s", r.Ranks.Threads, t.String())
}

// missedRanks is the floor that ranks do not reach.
func (r *Report) missedRanks() []string {
	if r.Ranks == nil {
		return nil
	}
	for _, s := range r.Ranks.Modes {
		if e := s.efficiency(); s.Shard == "none" && e.Median < rankFloor {
			return []string{fmt.Sprintf("ranks: %.2f times the speed of one process, floor %g", e.Median, rankFloor)}
		}
	}
	return nil
}
