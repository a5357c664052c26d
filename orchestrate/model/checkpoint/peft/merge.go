package peft

import (
	"encoding/binary"
	"errors"
	"math"
	"regexp"
	"strconv"

	"gyre/orchestrate/model/checkpoint/hf"
	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

// Merge adds the adapters to the weights of their base model: every adapted tensor of m becomes one of float32, which
// is W + scale B A rounded once, and what was trained whole takes the place of the base's. A tied head is untied where
// it or the embedding changes.
func (a *Adapter) Merge(m *hf.Model) error {
	if a.Tensors[hf.ScoreName] != nil || m.Config.Head != torch.HeadLM {
		return errors.New("a value head: only adapters of language models are merged")
	}
	byName := map[string]Module{}
	for _, module := range a.Modules {
		byName[module.Name+".weight"] = module
	}
	changed := func(name string) bool {
		_, adapted := byName[name]
		return adapted || a.Whole[name] != nil
	}
	if m.Config.TieEmbeddings && (changed(hf.LMHeadName) || changed(hf.EmbeddingName)) {
		m.Config.TieEmbeddings = false
		tied := m.Entries[0]
		tied.Name = hf.LMHeadName
		m.Entries = append(m.Entries, tied)
		m.Notes = append(m.Notes, "the head was tied to the embedding; it is not any more, since an adapter changes "+
			"one of them")
	}
	for i, e := range m.Entries {
		module, adapted := byName[e.Name]
		if !adapted {
			module, adapted = ofExpert(byName, e.Parameter)
		}
		if whole := a.Whole[e.Name]; whole != nil {
			m.Entries[i].Tensor = whole
		} else if adapted {
			m.Entries[i].Tensor = a.merged(module, e.Tensor)
		}
	}
	return nil
}

var expertName = regexp.MustCompile(`^(.*\.mlp\.experts\.)(\d+)\.(gate|up|down)(_proj\.weight)$`)

// ofExpert is the adapter of all experts as it is that of one expert's matrix.
func ofExpert(byName map[string]Module, p hf.Parameter) (m Module, adapted bool) {
	name := expertName.FindStringSubmatch(p.Name)
	if name == nil {
		return m, false
	}
	stacked := name[3]
	if stacked != "down" {
		stacked = "gate_up"
	}
	if m, adapted = byName[name[1]+stacked+name[4]]; name[3] == "up" {
		m.row = p.Shape[0]
	}
	m.expert, _ = strconv.ParseInt(name[2], 10, 64)
	return m, adapted
}

// factors are B and A of so many rows of the module.
func (a *Adapter) factors(m Module, rows int64) (left, right []float64, err error) {
	if right, err = a.Tensors[m.names()[0]].Float64s(); err != nil {
		return nil, nil, err
	}
	if left, err = a.Tensors[m.names()[1]].Float64s(); err != nil || m.experts == 0 {
		return left, right, err
	}
	own, width := make([]float64, 0, rows*m.Rank), int64(len(right))/m.experts
	for i := range rows {
		for k := range m.Rank {
			own = append(own, left[((m.row+i)*m.Rank+k)*m.experts+m.expert])
		}
	}
	return own, right[m.expert*width : (m.expert+1)*width], nil
}

// merged is a base model's tensor with the adapter added, dense and float32.
func (a *Adapter) merged(m Module, base *weights.Tensor) *weights.Tensor {
	sum := *base
	sum.DType, sum.Kind = weights.F32, weights.F32.String()
	sum.Load = func(buffer []byte) ([]byte, error) {
		w, _, err := base.Dense(weights.F32, buffer, nil)
		if err != nil {
			return nil, err
		}
		left, right, err := a.factors(m, base.Shape[0])
		if err != nil {
			return nil, err
		}
		if m.Name == embedding { // (B A)ᵀ = Aᵀ Bᵀ
			left, right = transposed(right, int(m.Rank)), transposed(left, int(base.Shape[1]))
		}
		addProduct(w, m.Scale, left, right, int(m.Rank))
		return w, nil
	}
	return &sum
}

// transposed is the transpose of a dense matrix with so many rows.
func transposed(x []float64, rows int) []float64 {
	columns := len(x) / rows
	out := make([]float64, len(x))
	for i := range rows {
		for j := range columns {
			out[j*rows+i] = x[i*columns+j]
		}
	}
	return out
}

// addProduct adds scale × left × right to the little-endian float32 matrix w; rank is the inner size. Sums are
// float64, each rounded once.
func addProduct(w []byte, scale float64, left, right []float64, rank int) {
	rows, columns := len(left)/rank, len(right)/rank
	sum := make([]float64, columns)
	for i := range rows {
		clear(sum)
		for k, b := range left[i*rank : (i+1)*rank] {
			for j, x := range right[k*columns : (k+1)*columns] {
				sum[j] += b * x
			}
		}
		row := w[4*i*columns : 4*(i+1)*columns]
		for j, delta := range sum {
			x := float64(math.Float32frombits(binary.LittleEndian.Uint32(row[4*j:])))
			binary.LittleEndian.PutUint32(row[4*j:], math.Float32bits(float32(x+scale*delta)))
		}
	}
}
