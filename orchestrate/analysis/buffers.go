package analysis

import (
	"fmt"
	"math"

	"gyre/torch"
)

// Component names, in the order of reports.
const (
	Task    = torch.Task
	Entropy = torch.Entropy
	KL      = torch.KL
)

// buffers is one gradient buffer per component.
type buffers map[string]*torch.Gradients

func (b buffers) components() []torch.Component {
	return torch.Terms(b[Task], b[Entropy], b[KL])
}

func (b buffers) zero() error {
	for _, g := range b {
		if err := g.Zero(); err != nil {
			return err
		}
	}
	return nil
}

func (b buffers) add(other buffers) error {
	for name, g := range b {
		if err := g.Add(other[name], 1); err != nil {
			return err
		}
	}
	return nil
}

// finite refuses the squared norm of a component's gradient that is not: nothing could be said about it.
func finite(component string, square float64) error {
	if math.IsNaN(square) || math.IsInf(square, 0) {
		return fmt.Errorf("the %s gradient is not finite: %w", component, torch.ErrNotFinite)
	}
	return nil
}

// squares are the components' squared norms, all finite.
func (b buffers) squares() (map[string]float64, error) {
	out := map[string]float64{}
	for name, g := range b {
		square, _, err := g.Dot(g)
		if err != nil {
			return nil, err
		}
		if err := finite(name, square); err != nil {
			return nil, err
		}
		out[name] = square
	}
	return out, nil
}

// pool makes and owns buffers for a set of components; those that are given back are used again.
type pool struct {
	model      *torch.Model
	components []string
	all, free  []buffers
}

func (p *pool) take() (buffers, error) {
	if n := len(p.free); n > 0 {
		b := p.free[n-1]
		p.free = p.free[:n-1]
		return b, b.zero()
	}
	b := buffers{}
	p.all = append(p.all, b)
	for _, name := range p.components {
		g, err := torch.NewGradients(p.model)
		if err != nil {
			return nil, fmt.Errorf("a gradient buffer: %w", err)
		}
		b[name] = g
	}
	return b, nil
}

func (p *pool) give(b buffers) { p.free = append(p.free, b) }

func (p *pool) close() {
	for _, b := range p.all {
		for _, g := range b {
			g.Close()
		}
	}
}
