package experiment

import (
	"gyre/orchestrate/config"
	"gyre/orchestrate/model/checkpoint"
	"gyre/torch"
)

// elementBytes is the size of a number in matrix products, and of keys and values.
func elementBytes(c *config.Config) int64 {
	if Placement(c).Compute == torch.ComputeBF16 {
		return 2
	}
	return 4
}

// kvFloats is what a position's keys and values take.
func kvFloats(m torch.ModelConfig) int64 { return 2 * m.NumLayers * m.NumKVHeads * m.HeadDim }

// headsOfOne is a shape with the most key/value heads that one of n ranks has which sample together.
func headsOfOne(m torch.ModelConfig, n int) torch.ModelConfig {
	m.NumKVHeads = (m.NumKVHeads + int64(n) - 1) / int64(n)
	return m
}

// Parameters counts those of a model; a tied head counts once.
func Parameters(m torch.ModelConfig) int64 { return checkpoint.AllWeights{}.Count(m) }

// blockMatrices counts the elements of the largest block's projections, bodyMatrices those of all.
func blockMatrices(m torch.ModelConfig) (most int64) {
	for layer := range m.NumLayers {
		most = max(most, layerMatrices(m, layer))
	}
	return most
}

func bodyMatrices(m torch.ModelConfig) (total int64) {
	for layer := range m.NumLayers {
		total += layerMatrices(m, layer)
	}
	return total
}

func layerMatrices(m torch.ModelConfig, layer int64) int64 {
	q, kv := m.NumHeads*m.HeadDim, m.NumKVHeads*m.HeadDim
	n := 2*q + 2*kv + 3*m.MLPWidth(layer)
	if m.Mixes(layer) {
		n += m.Shape.Experts * (1 + 3*m.Shape.ExpertSize)
	}
	return m.HiddenSize * n
}

// widestMLP is the width of the widest MLP that is no expert.
func widestMLP(m torch.ModelConfig) (widest int64) {
	for layer := range m.NumLayers {
		widest = max(widest, m.MLPWidth(layer))
	}
	return widest
}

// keptFloats is what the training forward keeps per row for the backward pass.
func keptFloats(m torch.ModelConfig, bytes int64, recompute bool) int64 {
	perBlock := m.HiddenSize
	if !recompute {
		perBlock = blockFloats(m, bytes)
	}
	return m.NumLayers*perBlock + 3*m.HiddenSize // the last block's output, the final hidden states and their gradient
}

// blockFloats is what a block keeps per row. Gates and values before SwiGLU are kept in the products' type.
func blockFloats(m torch.ModelConfig, bytes int64) int64 {
	q, kv := m.NumHeads*m.HeadDim, m.NumKVHeads*m.HeadDim
	inner := widestMLP(m) + m.Shape.ChosenExperts*m.Shape.ExpertSize
	n := 2*m.HiddenSize + 2*q + 2*kv + m.NumHeads + 2*inner*bytes/4 + m.Shape.Experts + 2
	if m.Shape.OutputNorms {
		n += 2*m.HiddenSize + 2
	}
	return n
}

// workFloats is the scratch of a block's backward pass per row, and with recomputation of its forward pass too.
func workFloats(m torch.ModelConfig, bytes int64, recompute bool) int64 {
	q, kv := m.NumHeads*m.HeadDim, m.NumKVHeads*m.HeadDim
	f, s := widestMLP(m), m.Shape
	n := m.HiddenSize + (2*m.HiddenSize+3*f)*bytes/4 + 3*q + 7*kv + f + s.ChosenExperts*m.HiddenSize + s.Experts
	widened := int64(0) // gates and values in float32 before they are kept
	if bytes < 4 {
		widened = 2 * f
		n += (max(m.HiddenSize, q+2*kv) + q) / 2 // rows in bfloat16, of which float32 is read too
		if s.Experts > 0 {
			n += m.HiddenSize
		}
	}
	if recompute {
		n += blockFloats(m, bytes) + 3*m.HiddenSize + q + 3*kv + f + widened +
			s.ChosenExperts*(m.HiddenSize+s.ExpertSize)
	}
	return n
}
