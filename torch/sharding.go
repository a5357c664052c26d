package torch

/*
#include "gyre.h"
*/
import "C"

import "fmt"

// What of a model is kept in shards.
const (
	ShardFull      = "full"      // parameters, gradients and moments; a pass gathers the weights block by block
	ShardOptimizer = "optimizer" // moments
	ShardNone      = "none"      // nothing: every rank makes the same update
)

var shardModes = map[string]C.int32_t{"": C.GYRE_SHARD_FULL, ShardFull: C.GYRE_SHARD_FULL,
	ShardOptimizer: C.GYRE_SHARD_OPTIMIZER, ShardNone: C.GYRE_SHARD_NONE}

// ShardConfig says how a model is sharded over the ranks of a group.
type ShardConfig struct {
	Shard         string // ShardFull, also "", ShardOptimizer or ShardNone
	Replicas      int    // copies of the model, each sharded over WorldSize/Replicas neighbours; 0 is 1
	Prefetch      int    // blocks under way while one computes; 0: nothing is, gradients neither
	BFloat16      bool   // between ranks; otherwise float32
	Deterministic bool   // gradients are added by lanes: the same bits for every number of ranks that divides them
	Lanes         int    // of all ranks together, when Deterministic
}

// NewShardedModel makes a model on the ranks of a group: all of them call it, with the same arguments. Its parameters
// are zero, to be filled through [Model.Shard] and then [Model.Touch]. The group is freed after the model. A nil group
// has nothing in shards, whatever is asked for.
//
// These become collective, that is, all ranks call them in the same order: [Gradients.Dot], [Gradients.Norm],
// [Products], [Gradients.Sketch] and [Optimizer.Step], and [Gradients.Add] with deterministic sums. With [ShardFull] so
// does everything that makes a pass ([Model.Logprobs], [Model.Values], [Model.Logits], [Model.PolicyBackward],
// [Model.ValueBackward]; a rank without sequences gives Batch{}, and the buffers of PolicyBackward's terms are the same
// on all ranks) and [Model.Gather]. Gradients become the sums of all ranks by themselves; statistics are of this rank's
// tokens.
func NewShardedModel(config ModelConfig, group *Group, s ShardConfig) (*Model, error) {
	return (&Model{Config: config}).over(group, s)
}

// over makes the model on the ranks of a group.
func (m *Model) over(group *Group, s ShardConfig) (*Model, error) {
	mode, known := shardModes[s.Shard]
	if !known {
		return nil, fmt.Errorf("sharding: shard is %q, expected full, optimizer or none: %w", s.Shard,
			ErrInvalidArgument)
	}
	m.sharded, m.shards, m.group = true, s, group
	sharding := C.gyre_sharding{shard: mode, replicas: C.int32_t(max(s.Replicas, 1)), prefetch: C.int32_t(s.Prefetch),
		bfloat16: C.bool(s.BFloat16), deterministic: C.bool(s.Deterministic), lanes: C.int32_t(s.Lanes)}
	if group == nil {
		sharding.shard = C.GYRE_SHARD_NONE
	} else if sharding.group = group.handle; sharding.group == nil {
		return nil, ErrClosed
	}
	return m.build(&sharding)
}

// Sharded tells whether the model was made by [NewShardedModel].
func (m *Model) Sharded() bool { return m.sharded }

// Group is the one that the model was made with; nil for a model in one process.
func (m *Model) Group() *Group { return m.group }

// Gather makes the engines' copy of the weights, block by block. With [ShardFull] all ranks call it before the first
// [Engine.Step] after an update or [Engine.Sleep]; otherwise it does nothing.
func (m *Model) Gather() error {
	return m.with(func(h *C.gyre_model) code { return C.gyre_model_gather(h) })
}

// TensorParallel makes the ranks of a group, all of which call it, sample from the model together: of engines made from
// here on each has some heads, columns and rows of the vocabulary, a shard of the packed weights, keys and values.
// Tokens and log-probs are those of one rank, on the CPU bit for bit. Requests go to the engine of the group's first
// rank, see [Engine.TensorParallel]. A group of one, or nil, changes nothing. Scoring and training are not touched by
// it. The group is freed after the model.
func (m *Model) TensorParallel(group *Group) error {
	if group.WorldSize() == 1 {
		return nil
	}
	return m.with(func(h *C.gyre_model) code {
		need(group.handle != nil)
		status := C.gyre_model_tensor_parallel(h, group.handle)
		if status == C.GYRE_OK {
			m.sampling = group
		}
		return status
	})
}

// CheckTensorParallel tells whether a model of this shape can be sampled by so many ranks together; the error says how
// many would do.
func (c ModelConfig) CheckTensorParallel(ranks int) error {
	return invoke(func() code { return C.gyre_check_tensor_parallel(c.c(), C.int32_t(ranks)) })
}

// Lanes are those of this rank, for deterministic sums: n of them from first on. Without, 0 and 1.
func (m *Model) Lanes() (first, n int) {
	if !m.shards.Deterministic {
		return 0, 1
	}
	n = m.shards.Lanes / m.group.WorldSize()
	return n * m.group.Rank(), n
}

// BeginLane says that the passes that follow belong to a lane, one of this rank's ([Model.Lanes]), in rising order
// until the buffer is zeroed or read.
func (g *Gradients) BeginLane(lane int) error {
	return g.with(func(h *C.gyre_gradients) code { return C.gyre_gradients_begin_lane(h, C.int32_t(lane)) })
}

// Shard is the part that this rank holds of a parameter, its gradient or a moment, laid out flat. For checkpoints,
// OwnCount entries from OwnFirst on are this rank's to write: every entry is one rank's.
type Shard struct {
	Tensor             *Tensor // aliases the storage
	First              int64   // of the tensor's entries in the parameter
	OwnFirst, OwnCount int64
}

// shardOf makes the shard of what held fills in.
func shardOf[H comparable](of *handle[H], held func(h H, out *C.gyre_held, tensor *C.gyre_tensor) code) (Shard, error) {
	var place C.gyre_held
	t := FromHandle(nil)
	err := of.with(func(h H) code { return held(h, &place, &t.c) })
	return Shard{Tensor: t, First: int64(place.first), OwnFirst: int64(place.own_first),
		OwnCount: int64(place.own_count)}, err
}

// Shard gives what is held here of parameter i in the order of [Model.Parameters]: all of it, flat, in one process.
// After changing values call [Model.Touch].
func (m *Model) Shard(i int) (Shard, error) {
	return shardOf(&m.handle, func(h *C.gyre_model, out *C.gyre_held, tensor *C.gyre_tensor) code {
		return C.gyre_model_held(h, C.int32_t(i), out, tensor)
	})
}

// Shard gives what is held here of the gradient of parameter i.
func (g *Gradients) Shard(i int) (Shard, error) {
	return shardOf(&g.handle, func(h *C.gyre_gradients, out *C.gyre_held, tensor *C.gyre_tensor) code {
		return C.gyre_gradients_held(h, C.int32_t(i), out, tensor)
	})
}

// Shard gives what is held here of a moment of parameter i.
func (o *Optimizer) Shard(which Moment, i int) (Shard, error) {
	return shardOf(&o.handle, func(h *C.gyre_optimizer, out *C.gyre_held, tensor *C.gyre_tensor) code {
		return C.gyre_optimizer_held(h, C.int32_t(which), C.int32_t(i), out, tensor)
	})
}
