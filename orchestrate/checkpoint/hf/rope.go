package hf

// readRope takes rope_scaling and rope_theta (older) or rope_parameters (transformers 5), which may be nested by
// layer type. Precedence is transformers': a non-empty rope_scaling, then rope_parameters; inside either, a
// rope_theta of its own, then the top-level one.
func readRope(f *fields, maxPositions int64) Rope {
	r := Rope{Type: RopeDefault, Theta: f.number("rope_theta", 10000)}
	refusePartial(f)
	p := f.object("rope_scaling")
	if p == nil {
		p = f.object("rope_parameters")
	}
	if p == nil {
		return r
	}
	if nested := p.object("full_attention"); nested != nil {
		p = nested
	}
	refusePartial(p)
	r.Theta = p.number("rope_theta", r.Theta)
	key := "rope_type"
	if !p.has(key) && p.has("type") {
		key = "type"
	}
	r.Type = p.text(key, RopeDefault)
	switch r.Type {
	case RopeDefault:
	case RopeLinear:
		r.Factor = p.required("factor")
	case RopeLlama3:
		r.Factor = p.required("factor")
		r.LowFreqFactor = p.required("low_freq_factor")
		r.HighFreqFactor = p.required("high_freq_factor")
		r.OriginalMaxPositions = f.integer("original_max_position_embeddings",
			p.integer("original_max_position_embeddings", maxPositions))
		if r.HighFreqFactor <= r.LowFreqFactor {
			p.refuse("high_freq_factor", "%v must be larger than low_freq_factor %v", r.HighFreqFactor, r.LowFreqFactor)
		}
		if r.OriginalMaxPositions <= 0 {
			p.refuse("original_max_position_embeddings", "must be positive, got %d", r.OriginalMaxPositions)
		}
	default:
		p.refuse(key, "%q is not supported: expected default, linear or llama3", r.Type)
	}
	return r
}

func (f *fields) required(key string) float64 {
	v := f.number(key, 0)
	if !(v > 0) {
		f.refuse(key, "must be a positive number for this rope_type")
	}
	return v
}

func refusePartial(f *fields) {
	if v := f.number("partial_rotary_factor", 1); v != 1 {
		f.refuse("partial_rotary_factor", "%v is not supported: every head dimension rotates", v)
	}
}
