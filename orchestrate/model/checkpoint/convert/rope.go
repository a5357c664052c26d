package convert

import (
	"errors"
	"fmt"
	"math"

	"gyre/orchestrate/model/checkpoint/hf"
	"gyre/orchestrate/model/checkpoint/weights"
)

// ropeFactors is the tensor in which GGUF keeps what Llama 3's rotary scaling comes to.
const ropeFactors = "rope_freqs.weight"

// ropeScaling is the rope_scaling of config.json that a file's metadata and factors stand for; nil without scaling.
func ropeScaling(m weights.Metadata, arch string, factors *weights.Tensor) (map[string]any, error) {
	kind, _ := m[arch+".rope.scaling.type"].(string)
	factor, hasFactor := m.Number(arch + ".rope.scaling.factor")
	if !hasFactor {
		factor, hasFactor = m.Number(arch + ".rope.scale_linear")
	}
	switch {
	case factors != nil:
		values, err := factors.Float64s()
		if err != nil || len(values) == 0 {
			return nil, errors.Join(fmt.Errorf("%s is empty or unreadable", ropeFactors), err)
		}
		// The file keeps one factor per frequency. The parameters behind them are those of every Llama 3 release, but
		// for the largest factor.
		return map[string]any{"rope_type": "llama3", "factor": values[len(values)-1], "low_freq_factor": 1,
			"high_freq_factor": 4, "original_max_position_embeddings": 8192}, nil
	case kind == "linear" || kind == "" && hasFactor && factor != 1:
		return map[string]any{"rope_type": "linear", "factor": factor}, nil
	case kind == "" || kind == "none":
		return nil, nil
	default:
		return nil, fmt.Errorf("metadata key %s.rope.scaling.type %q is not supported: expected none or linear", arch,
			kind)
	}
}

// checkRopeFactors proves that the assumed Llama 3 parameters give the factors in the file.
func checkRopeFactors(c hf.Config, t *weights.Tensor) error {
	values, err := t.Float64s()
	if err != nil {
		return err
	}
	if int64(len(values)) != c.HeadDim/2 {
		return fmt.Errorf("%s has %d values, expected %d", ropeFactors, len(values), c.HeadDim/2)
	}
	original := float64(c.RopeOriginalMaxPositions)
	for i, got := range values {
		wavelength := 2 * math.Pi * math.Pow(c.RopeTheta, 2*float64(i)/float64(c.HeadDim))
		smooth := (original/wavelength - c.RopeLowFreqFactor) / (c.RopeHighFreqFactor - c.RopeLowFreqFactor)
		smooth = min(max(smooth, 0), 1)
		want := 1 / ((1-smooth)/c.RopeFactor + smooth)
		if math.Abs(got-want) > 1e-3*want {
			return fmt.Errorf("%s[%d] is %v, Llama 3's rotary scaling gives %v: this scaling is not supported",
				ropeFactors, i, got, want)
		}
	}
	return nil
}
