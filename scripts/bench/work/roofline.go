package work

import (
	"cmp"
	"slices"

	"gyre/torch"
)

// Machine is what was measured beside the work: the rate at which memory is read in bytes/s, the peaks of matrix
// products in FLOP/s, in f32 and in 16 bits, and the numbers per second of which an exponential is taken.
type Machine struct {
	Bandwidth float64 `json:"bandwidth"`
	FLOPS     float64 `json:"flops"`
	FLOPS16   float64 `json:"flops16,omitempty"`
	Rows      float64 `json:"rows,omitempty"`
}

// Bounds are the least seconds of a task's phases on a machine. First is the time to every sequence's first token,
// Decode the rest of a generation; tasks without such phases have Total alone. Attainable is Total's share of the least
// time in which products wait for exponentials, those of activations and of both softmaxes; 0 where these were not
// measured.
type Bounds struct {
	First      float64 `json:"first,omitempty"`
	Decode     float64 `json:"decode,omitempty"`
	Total      float64 `json:"total"`
	Attainable float64 `json:"attainable,omitempty"`
}

// decoder counts a model's work on a machine.
type decoder struct {
	machine Machine
	number  float64 // bytes of a weight, a key or a value as a pass reads it

	body, head float64 // parameters of the blocks' matrices and of the LM head
	all        float64 // all parameters
	scores     float64 // FLOPs of one query over one key, all heads and blocks
	weighed    float64 // exponentials of the same
	activated  float64 // exponentials of a token's activations
	vocab      float64 // and of its logits
	cache      float64 // bytes of keys and values of one position
}

func newDecoder(c torch.ModelConfig, m Machine, half bool) decoder {
	d := decoder{machine: m, number: 4}
	if half {
		d.number = 2
		d.machine.FLOPS = cmp.Or(m.FLOPS16, m.FLOPS)
	}
	q, kv := c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim
	d.body = float64(c.NumLayers * (c.HiddenSize*(q+2*kv) + q*c.HiddenSize + 3*c.HiddenSize*c.IntermediateSize))
	d.head = float64(c.VocabSize * c.HiddenSize)
	if d.all = d.body + d.head; !c.TieEmbeddings {
		d.all += d.head
	}
	d.scores = float64(4 * c.NumLayers * q)
	d.weighed, d.activated = float64(c.NumLayers*c.NumHeads), float64(c.NumLayers*c.IntermediateSize)
	d.vocab = float64(c.VocabSize)
	d.cache = 2 * d.number * float64(c.NumLayers*kv)
	return d
}

// rows are positions of one sequence in a pass: new ones after past ones, with logits for some of them.
type rows struct{ past, count, logits int }

// arithmetic is that of a pass: FLOPs of products, and exponentials.
func (d decoder) arithmetic(pass []rows) (flops, exponentials float64) {
	for _, r := range pass {
		n, logits := float64(r.count), float64(r.logits)
		seen := n*float64(r.past) + n*(n+1)/2
		flops += 2*d.body*n + 2*d.head*logits + d.scores*seen
		exponentials += d.activated*n + d.vocab*logits + d.weighed*seen
	}
	return flops, exponentials
}

// bytes are read by a pass: all weights once, and the keys and values of past positions, but for some that rows share.
func (d decoder) bytes(pass []rows, shared int) float64 {
	sum := d.number*(d.body+d.head) - float64(shared)*d.cache
	for _, r := range pass {
		sum += float64(r.past) * d.cache
	}
	return sum
}

// overlapped is the time of arithmetic and memory traffic that go on together. Exponentials count where their rate is
// known.
func (d decoder) overlapped(flops, exponentials, bytes float64) float64 {
	arithmetic := flops / d.machine.FLOPS
	if d.machine.Rows > 0 {
		arithmetic += exponentials / d.machine.Rows
	}
	return max(arithmetic, bytes/d.machine.Bandwidth)
}

func (d decoder) pass(pass []rows, shared int) float64 {
	flops, exponentials := d.arithmetic(pass)
	return d.overlapped(flops, exponentials, d.bytes(pass, shared))
}

// decode is the time of so many passes in which every sequence gets one token more.
func (d decoder) decode(histories []int, tokens, shared int) (seconds float64) {
	for step := range tokens {
		var pass []rows
		for _, length := range histories {
			pass = append(pass, rows{past: length + step, count: 1, logits: 1})
		}
		seconds += d.pass(pass, shared)
	}
	return seconds
}

// Bound is the least time of a task: every distinct token of a prefix is computed once, every weight is read once per
// pass, and within a pass memory and arithmetic overlap perfectly. No program reaches it; it says how much room is
// left. It is 0 for work that is not the model's alone. half: weights, keys and values are numbers of 16 bits.
func Bound(t Task, model torch.ModelConfig, m Machine, half bool) Bounds {
	products := m
	products.Rows = 0
	b := newDecoder(model, products, half).bounds(t)
	if m.Rows > 0 && b.Total > 0 {
		b.Attainable = b.Total / newDecoder(model, m, half).bounds(t).Total
	}
	return b
}

func (d decoder) bounds(t Task) Bounds {
	if t.Adapters > 0 {
		return Bounds{}
	}
	switch t.Op {
	case OpGenerate:
		return d.generation(t.Case)
	case OpRollout:
		return Bounds{Total: d.rollout(t)}
	case OpLogprobs:
		return Bounds{Total: d.pass(slices.Repeat([]rows{{count: t.Length, logits: t.Length - 1}}, t.Rows), 0)}
	case OpUpdate:
		return Bounds{Total: d.backward(1, t.Rows, t.Length, t.Context) + d.optimizer()}
	case OpGRPO:
		update := d.backward(t.Batch, t.Copies, t.Prompt+t.New, t.Prompt) + d.optimizer()
		return Bounds{Total: d.generation(t.Case).Total + update}
	}
	return Bounds{}
}

// generation reads the keys of a prompt once for all its copies.
func (d decoder) generation(c Case) Bounds {
	first := d.pass(slices.Repeat([]rows{{count: c.Prompt, logits: 1}}, c.Batch), 0)
	rest := d.decode(slices.Repeat([]int{c.Prompt}, c.Batch*c.Copies), c.New-1, c.Batch*(c.Copies-1)*c.Prompt)
	return Bounds{First: first, Decode: rest, Total: first + rest}
}

// rollout computes what is new in every turn; what all first prompts begin with counts once.
func (d decoder) rollout(t Task) (seconds float64) {
	common := commonPrefix(t.Observations)
	histories := make([]int, len(t.Observations))
	for turn := range t.Observations[0] {
		var pass []rows
		for e, episode := range t.Observations {
			past := histories[e] - 1 // the reply's last token has no keys yet
			if turn == 0 {
				past = common
			}
			histories[e] += len(episode[turn])
			pass = append(pass, rows{past: past, count: histories[e] - past, logits: 1})
		}
		if turn == 0 {
			pass = append(pass, rows{count: common})
		}
		seconds += d.pass(pass, 0) + d.decode(histories, t.New-1, (len(histories)-1)*common)
		for e := range histories {
			histories[e] += t.New
		}
	}
	return seconds
}

func commonPrefix(observations [][][]int32) int {
	common := observations[0][0]
	for _, episode := range observations[1:] {
		n := 0
		for n < min(len(common), len(episode[0])) && episode[0][n] == common[n] {
			n++
		}
		common = common[:n]
	}
	return len(common)
}

// backward is forward and backward, which is twice a forward and takes all exponentials again; the context that a
// group's rows begin with is computed once.
func (d decoder) backward(groups, count, length, context int) float64 {
	logits := length - context
	if context == 0 {
		logits-- // nothing predicts the first token
	}
	pass := append(slices.Repeat([]rows{{past: context, count: length - context, logits: logits}}, count),
		rows{count: context})
	flops, exponentials := d.arithmetic(pass)
	return d.overlapped(3*float64(groups)*flops, 2*float64(groups)*exponentials, 3*d.bytes(nil, 0))
}

// optimizer reads weights, gradients and two moments, all in f32, and writes all but the gradients.
func (d decoder) optimizer() float64 { return d.overlapped(0, 0, 7*4*d.all) }
