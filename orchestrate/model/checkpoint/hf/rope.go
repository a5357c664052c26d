package hf

import (
	"cmp"
	"math"
	"reflect"
	"slices"

	"gyre/torch"
)

// rope is an object under rope_scaling or rope_parameters.
type rope struct {
	Type                 string    `json:"rope_type,omitempty"`
	OldType              string    `json:"type,omitempty"`
	Theta                decimal   `json:"rope_theta,omitempty"`
	Factor               decimal   `json:"factor,omitempty"`
	LowFreqFactor        decimal   `json:"low_freq_factor,omitempty"`
	HighFreqFactor       decimal   `json:"high_freq_factor,omitempty"`
	OriginalMaxPositions int64     `json:"original_max_position_embeddings,omitempty"`
	PartialRotary        decimal   `json:"partial_rotary_factor,omitempty"`
	AttentionFactor      decimal   `json:"attention_factor,omitempty"`
	BetaFast             decimal   `json:"beta_fast,omitempty"`
	BetaSlow             decimal   `json:"beta_slow,omitempty"`
	MScale               decimal   `json:"mscale,omitempty"`
	MScaleAllDim         decimal   `json:"mscale_all_dim,omitempty"`
	Truncate             *bool     `json:"truncate,omitempty"`
	ShortFactor          []float64 `json:"short_factor,omitempty"`
	LongFactor           []float64 `json:"long_factor,omitempty"`
	FullAttention        *rope     `json:"full_attention,omitempty"` // in a rope_parameters by layer type
	SlidingAttention     *rope     `json:"sliding_attention,omitempty"`
}

// readRope takes rope_scaling and rope_theta (older) or rope_parameters (transformers 5), which may be nested by layer
// type. Precedence is transformers': a non-empty rope_scaling, then rope_parameters; inside either, a rope_theta of its
// own, then the top-level one.
func (c *Config) readRope(f configFile, longest int64, p *problems) {
	of := families[c.Family]
	key, r := f.rope()
	local := &rope{}
	switch {
	case of.localTheta > 0:
		key, r, local = f.ropesByLayer(p)
	case r.SlidingAttention != nil:
		p.add(key+"sliding_attention", "one rotary embedding for all layers expected in a %s model", c.Family)
	case r.FullAttention != nil:
		nested := *r.FullAttention
		nested.Truncate = r.Truncate // transformers looks for it here
		r = &nested
	}
	partial := cmp.Or(r.PartialRotary, f.PartialRotary, 1)
	if partial != 1 && !of.partial {
		p.add(key+"partial_rotary_factor", "%v is not supported in a %s model: every head dimension rotates", partial,
			c.Family)
	}
	dims := c.HeadDim
	if of.partial && partial != 1 {
		dims = int64(float64(c.HeadDim) * float64(partial))
		c.Shape.RotaryDims = int32(dims + dims%2) // a pair of which one is between two frequencies, as in transformers
		if dims == 0 {
			c.mark(torch.NoPELayer, func(int64) bool { return true })
		}
	}
	c.RopeTheta = float64(cmp.Or(r.Theta, f.RopeTheta))
	s := scaling{key: key, rope: r, config: c, file: &f, dims: dims, longest: longest, problems: p}
	c.Shape.Rope, c.rope = s.numbers(&c.RopeTheta), s.written()
	if of.localTheta > 0 {
		c.Shape.LocalTheta = float64(cmp.Or(local.Theta, f.RopeLocalTheta, decimal(of.localTheta)))
		s.key, s.rope = "rope_parameters.sliding_attention.", local
		c.Shape.LocalRope = s.numbers(&c.Shape.LocalTheta)
	}
}

// rope is what a file says of rotary embeddings, and under which key.
func (f *configFile) rope() (key string, r *rope) {
	if f.RopeScaling != nil && !reflect.DeepEqual(*f.RopeScaling, rope{}) {
		return "rope_scaling.", f.RopeScaling
	}
	return "rope_parameters.", cmp.Or(f.RopeParameters, &rope{})
}

// ropesByLayer are those of the layers that see everything and of those within a window. An older file has the first
// one's scaling in rope_scaling. truncate stands beside them.
func (f *configFile) ropesByLayer(p *problems) (key string, full, local *rope) {
	both := cmp.Or(f.RopeParameters, &rope{})
	rest := *both
	rest.FullAttention, rest.SlidingAttention, rest.Truncate = nil, nil, nil
	if !reflect.DeepEqual(rest, rope{}) {
		p.add("rope_parameters", "expected full_attention and sliding_attention in it, and nothing else")
	}
	full, local = cmp.Or(both.FullAttention, &rope{}), cmp.Or(both.SlidingAttention, &rope{})
	key, old := f.rope()
	if old != f.RopeScaling {
		key += "full_attention."
	} else {
		if both.FullAttention != nil || old.FullAttention != nil || old.SlidingAttention != nil {
			p.add("rope_scaling", "expected the scaling of full_attention, and no such in rope_parameters")
		}
		full = old
	}
	main := *full
	main.Truncate = both.Truncate
	return key, &main, local
}

// RopeType is the rope_type of a configuration's first rotary embedding.
func (c Config) RopeType() string { return cmp.Or(c.rope, &rope{Type: "default"}).Type }

// scaling is a rotary embedding's scaling on its way from a configuration into numbers.
type scaling struct {
	key      string
	rope     *rope
	config   *Config
	file     *configFile
	dims     int64 // that rotate
	longest  int64 // of a run's sequences; 0: not known
	problems *problems
}

func (s scaling) kind() string {
	name := cmp.Or(s.rope.Type, s.rope.OldType, "default")
	if name == "su" || name == "yarn" && s.config.Family == torch.Phi3 { // older names of Phi-3's
		return "longrope"
	}
	return name
}

// written is the scaling as Encode writes it: in full where its kind is one of a plain configuration.
func (s scaling) written() *rope {
	r, kind := s.rope, s.kind()
	switch {
	case kind == "default" || *s.problems != nil:
		return nil
	case kind == "linear":
		return &rope{Type: kind, Factor: r.Factor}
	case kind == "llama3":
		return &rope{Type: kind, Factor: r.Factor, LowFreqFactor: r.LowFreqFactor, HighFreqFactor: r.HighFreqFactor,
			OriginalMaxPositions: s.original()}
	}
	return &rope{Type: kind}
}

func (s scaling) positive(name string, v decimal) float64 {
	if !(v > 0) || math.IsInf(float64(v), 0) {
		s.problems.add(s.key+name, "must be a positive number for this rope_type, got %v", float64(v))
	}
	return float64(v)
}

// original is the length that the model was trained for before its scaling.
func (s scaling) original() int64 {
	n := cmp.Or(s.file.OriginalMaxPositions, s.rope.OriginalMaxPositions, s.config.MaxPositions)
	if families[s.config.Family].localTheta > 0 { // each has its own
		n = cmp.Or(s.rope.OriginalMaxPositions, s.config.MaxPositions)
	}
	if n <= 0 {
		s.problems.add(s.key+"original_max_position_embeddings", "must be positive, got %d", n)
		return 1
	}
	return n
}

func (s scaling) llama3() (low, high float64, original int64) {
	low = s.positive("low_freq_factor", s.rope.LowFreqFactor)
	high = s.positive("high_freq_factor", s.rope.HighFreqFactor)
	if high <= low {
		s.problems.add(s.key+"high_freq_factor", "%v must be larger than low_freq_factor %v", high, low)
	}
	return low, high, s.original()
}

// numbers is the scaling as divisors of frequencies, a magnitude, and what becomes of theta.
func (s scaling) numbers(theta *float64) (out torch.Rope) {
	pairs := (s.dims + 1) / 2
	if kind := s.kind(); (kind != "default" || s.dims%2 != 0) && pairs > torch.MaxPairs {
		s.problems.add(s.key+"rope_type", "%q of %d components: at most %d are supported", kind, s.dims,
			2*torch.MaxPairs)
		return out
	}
	set := func(divisor func(pair int64) float64) {
		for i := range pairs {
			out.Divisors[i] = divisor(i)
		}
	}
	switch kind := s.kind(); kind {
	case "default":
	case "linear":
		factor := s.positive("factor", s.rope.Factor)
		set(func(int64) float64 { return factor })
	case "llama3":
		factor := s.positive("factor", s.rope.Factor)
		low, high, original := s.llama3()
		set(func(i int64) float64 {
			plain := s.frequency(*theta, i)
			wavelength := 2 * math.Pi / plain
			smooth := min(max((float64(original)/wavelength-low)/(high-low), 0), 1)
			return plain / float64(float32((1-smooth)*plain/factor+smooth*plain))
		})
	case "dynamic":
		*theta = s.dynamic(*theta)
	case "yarn", "longrope":
		if s.dims%2 != 0 {
			s.problems.add(s.key+"partial_rotary_factor", "makes %d components rotate, an even number expected with %q",
				s.dims, kind)
			break
		}
		if kind == "longrope" {
			out.Magnitude = s.longrope(set)
			break
		}
		out.Magnitude = s.yarn(*theta, set)
	default:
		s.problems.add(s.key+"rope_type", "%q is not supported: expected default, linear, dynamic, yarn, llama3 or "+
			"longrope", kind)
	}
	for i := range pairs * (s.dims % 2) { // frequencies are those of an odd number of components
		even := math.Pow(*theta, 2*float64(i)/float64(s.dims+1))
		out.Divisors[i] = cmp.Or(out.Divisors[i], 1) * s.period(*theta, i) / even
	}
	return out
}

// period is the inverse of a pair's frequency.
func (s scaling) period(theta float64, pair int64) float64 {
	return math.Pow(theta, 2*float64(pair)/float64(s.dims))
}

// frequency is a pair's, rounded where transformers rounds.
func (s scaling) frequency(theta float64, pair int64) float64 {
	return float64(float32(1 / float64(float32(s.period(theta, pair)))))
}

// dynamic is theta by NTK scaling (bloc97 and emozilla 2023), of which transformers takes another for every length
// beyond max_position_embeddings: here it is that of the longest sequence of a run.
func (s scaling) dynamic(theta float64) float64 {
	factor, c := s.positive("factor", s.rope.Factor), s.config
	if s.longest <= c.MaxPositions || s.dims <= 2 {
		return theta
	}
	stretch := factor*float64(s.longest)/float64(c.MaxPositions) - (factor - 1)
	c.MaxPositions = s.longest
	return theta * math.Pow(stretch, float64(s.dims)/float64(s.dims-2))
}

// yarn divides slow frequencies by the factor and leaves fast ones (Peng et al. 2023).
func (s scaling) yarn(theta float64, set func(func(pair int64) float64)) (magnitude float64) {
	r, original := s.rope, float64(s.original())
	factor := float64(r.Factor)
	if factor == 0 {
		factor = float64(s.config.MaxPositions) / original
	}
	s.positive("factor", decimal(factor))
	mscale := func(by decimal) float64 {
		if factor <= 1 {
			return 1
		}
		return 0.1*float64(by)*math.Log(factor) + 1
	}
	magnitude = float64(r.AttentionFactor)
	switch {
	case magnitude != 0:
	case r.MScale != 0 && r.MScaleAllDim != 0:
		magnitude = mscale(r.MScale) / mscale(r.MScaleAllDim)
	default:
		magnitude = mscale(1)
	}
	boundary := func(rotations decimal) float64 {
		return float64(s.dims) * math.Log(original/(float64(rotations)*2*math.Pi)) / (2 * math.Log(theta))
	}
	low, high := boundary(cmp.Or(r.BetaFast, 32)), boundary(cmp.Or(r.BetaSlow, 1))
	if r.Truncate == nil || *r.Truncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(s.dims-1))
	if low == high {
		high += 0.001
	}
	set(func(i int64) float64 {
		ramp := min(max((float64(i)-low)/(high-low), 0), 1)
		return 1 / (ramp/factor + 1 - ramp)
	})
	return magnitude
}

// longrope divides every frequency by a number of its own, of which there are two lists (Ding et al. 2024): for
// sequences up to the original length, and for longer ones. Which it is follows from the longest sequence of a run.
func (s scaling) longrope(set func(func(pair int64) float64)) (magnitude float64) {
	r, c, original := s.rope, s.config, s.original()
	factor := float64(r.Factor)
	if factor == 0 {
		factor = float64(c.MaxPositions) / float64(original)
	}
	if magnitude = float64(r.AttentionFactor); magnitude == 0 {
		magnitude = 1
		if factor > 1 {
			magnitude = math.Sqrt(1 + math.Log(factor)/math.Log(float64(original)))
		}
	}
	name, list := "short_factor", r.ShortFactor
	if s.longest > original {
		name, list = "long_factor", r.LongFactor
	} else {
		c.MaxPositions = min(c.MaxPositions, original)
	}
	if int64(len(list)) != s.dims/2 || slices.ContainsFunc(list, func(v float64) bool { return !(v > 0) }) {
		s.problems.add(s.key+name, "expected %d positive numbers, one for each pair of components, got %d", s.dims/2,
			len(list))
		return magnitude
	}
	set(func(i int64) float64 { return list[i] })
	return magnitude
}
