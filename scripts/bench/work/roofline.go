package work

import "gyre/torch"

// Machine is what was measured beside the work: the rate at which memory is read in bytes/s and the peaks of matrix
// products in FLOP/s, in f32 and in 16 bits.
type Machine struct {
	Bandwidth float64 `json:"bandwidth"`
	FLOPS     float64 `json:"flops"`
	FLOPS16   float64 `json:"flops16,omitempty"`
}

// in is the machine as work in 16 bits, or in f32, meets it.
func (m Machine) in(half bool) Machine {
	if half && m.FLOPS16 > 0 {
		m.FLOPS = m.FLOPS16
	}
	return m
}

// Bounds are the least seconds of a task's phases on a machine. First is the time to every sequence's first token,
// Decode the rest of a generation; tasks without such phases have Total alone.
type Bounds struct {
	First  float64 `json:"first,omitempty"`
	Decode float64 `json:"decode,omitempty"`
	Total  float64 `json:"total"`
}

// load is arithmetic and memory traffic that can overlap.
type load struct{ flops, bytes float64 }

func (l load) seconds(m Machine) float64 { return max(l.flops/m.FLOPS, l.bytes/m.Bandwidth) }

// decoder counts a model's work.
type decoder struct {
	number float64 // bytes of a weight, a key or a value as a pass reads it

	body, head float64 // parameters of the blocks' matrices and of the LM head
	all        float64 // all parameters
	scores     float64 // FLOPs of one query over one key, all heads and blocks
	cache      float64 // bytes of keys and values of one position
}

func newDecoder(m torch.ModelConfig, half bool) decoder {
	number := 4.0
	if half {
		number = 2
	}
	q, kv := m.NumHeads*m.HeadDim, m.NumKVHeads*m.HeadDim
	body := float64(m.NumLayers * (m.HiddenSize*(q+2*kv) + q*m.HiddenSize + 3*m.HiddenSize*m.IntermediateSize))
	head := float64(m.VocabSize * m.HiddenSize)
	all := body + head
	if !m.TieEmbeddings {
		all += head
	}
	return decoder{number: number, body: body, head: head, all: all, scores: float64(4 * m.NumLayers * q),
		cache: 2 * number * float64(m.NumLayers*kv)}
}

// extend runs n new positions after past ones, with logits for some of them.
func (d decoder) extend(past, n, logits int) load {
	keys := float64(n)*float64(past) + float64(n)*float64(n+1)/2
	return load{flops: 2*d.body*float64(n) + 2*d.head*float64(logits) + d.scores*keys, bytes: float64(past) * d.cache}
}

func (l load) plus(other load) load { return load{l.flops + other.flops, l.bytes + other.bytes} }

// weights is what one pass over the model reads.
func (d decoder) weights() load { return load{bytes: d.number * (d.body + d.head)} }

// decode is one pass in which every sequence, step tokens after its history, gets one token more.
func (d decoder) decode(histories []int, step int) load {
	pass := d.weights()
	for _, length := range histories {
		pass = pass.plus(d.extend(length+step, 1, 1))
	}
	return pass
}

// Bound is the least time of a case's task: every distinct token of a prefix is computed once, every weight is read
// once per pass, and within a pass memory and arithmetic overlap perfectly. No program reaches it; it says how much
// room is left. half: weights, keys and values are numbers of 16 bits.
func Bound(c Case, t Task, model torch.ModelConfig, m Machine, half bool) Bounds {
	d := newDecoder(model, half)
	m = m.in(half)
	switch t.Op {
	case OpGenerate:
		return d.generation(len(t.Prompts), t.Copies, c.Prompt, t.New, m)
	case OpRollout:
		return Bounds{Total: d.rollout(t, m)}
	case OpLogprobs:
		pass := d.weights()
		for _, ids := range t.Sequences {
			pass = pass.plus(d.extend(0, len(ids), len(ids)-1))
		}
		return Bounds{Total: pass.seconds(m)}
	case OpUpdate:
		return Bounds{Total: d.backward(1, c.Rows, c.Length, c.Context, m) + d.optimizer(m)}
	case OpAnalysis: // one forward pass, and a backward pass for each of the three gradients
		return Bounds{Total: 7.0 / 3 * d.backward(1, c.Rows, c.Length, 0, m)}
	case OpGRPO:
		generation := d.generation(c.Batch, c.Copies, c.Prompt, c.New, m)
		update := d.backward(c.Batch, c.Copies, c.Prompt+c.New, c.Prompt, m) + d.optimizer(m)
		return Bounds{Total: generation.Total + update}
	}
	return Bounds{}
}

func (d decoder) generation(prompts, copies, length, tokens int, m Machine) Bounds {
	first := d.weights()
	for range prompts {
		first = first.plus(d.extend(0, length, 1))
	}
	histories := make([]int, prompts*copies)
	for i := range histories {
		histories[i] = length
	}
	// The keys of a prompt are read once for all its copies.
	shared := float64(prompts*(copies-1)*length) * d.cache
	total := 0.0
	for step := range tokens - 1 {
		pass := d.decode(histories, step)
		pass.bytes -= shared
		total += pass.seconds(m)
	}
	return Bounds{First: first.seconds(m), Decode: total, Total: first.seconds(m) + total}
}

// rollout computes what is new in every turn; what all first prompts begin with counts once.
func (d decoder) rollout(t Task, m Machine) float64 {
	common, total := commonPrefix(t.Observations), 0.0
	histories := make([]int, len(t.Observations))
	for turn := range t.Observations[0] {
		pass := d.weights()
		if turn == 0 {
			pass = pass.plus(d.extend(0, common, 0))
		}
		for e, episode := range t.Observations {
			past, n := histories[e], len(episode[turn])
			if turn == 0 {
				past, n = common, n-common
			} else {
				past, n = past-1, n+1 // the reply's last token has no keys yet
			}
			pass = pass.plus(d.extend(past, n, 1))
			histories[e] = past + n
		}
		total += pass.seconds(m)
		for step := range t.New - 1 {
			pass := d.decode(histories, step)
			pass.bytes -= float64((len(histories)-1)*common) * d.cache
			total += pass.seconds(m)
		}
		for e := range histories {
			histories[e] += t.New
		}
	}
	return total
}

func commonPrefix(observations [][][]int32) int {
	first := observations[0][0]
	n := len(first)
	for _, episode := range observations[1:] {
		i := 0
		for i < min(n, len(episode[0])) && episode[0][i] == first[i] {
			i++
		}
		n = i
	}
	return n
}

// backward is forward and backward, which is twice a forward; the context that a group's rows begin with is computed
// once.
func (d decoder) backward(groups, rows, length, context int, m Machine) float64 {
	logits := length - context
	if context == 0 {
		logits-- // nothing predicts the first token
	}
	group := d.extend(0, context, 0)
	for range rows {
		group = group.plus(d.extend(context, length-context, logits))
	}
	pass := load{flops: 3 * float64(groups) * group.flops, bytes: 3 * d.weights().bytes}
	return pass.seconds(m)
}

// optimizer reads weights, gradients and two moments, all in f32, and writes all but the gradients.
func (d decoder) optimizer(m Machine) float64 { return load{bytes: 7 * 4 * d.all}.seconds(m) }
