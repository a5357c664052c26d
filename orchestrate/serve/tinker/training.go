package tinker

import (
	"context"
	"io"
	"net/http"

	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/serve"
	"gyre/torch"
)

// forwardBackward takes a request in protobuf.
func (s *Server) forwardBackward(r *http.Request, _ struct{}) (any, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	in, problem := readForwardBackward(body)
	return s.submit(in.model, in.seq, int64(len(body)), func(ctx context.Context, m *model) (any, error) {
		if problem != nil {
			return nil, serve.Bad("", "the body is no ForwardBackwardRequest: %v", problem)
		}
		return m.passes(ctx, in)
	})
}

// adamParams are AdamW's, given with each step.
type adamParams struct {
	LearningRate float64 `json:"learning_rate"`
	Beta1        float64 `json:"beta1"`
	Beta2        float64 `json:"beta2"`
	Eps          float64 `json:"eps"`
	WeightDecay  float64 `json:"weight_decay"`
	ClipNorm     float64 `json:"grad_clip_norm"`
}

func (p adamParams) check() error {
	for _, x := range []struct {
		name string
		ok   bool
	}{{"learning_rate", p.LearningRate >= 0}, {"beta1", p.Beta1 >= 0 && p.Beta1 < 1},
		{"beta2", p.Beta2 >= 0 && p.Beta2 < 1},
		{"eps", p.Eps > 0}, {"weight_decay", p.WeightDecay >= 0}} {
		if !x.ok {
			return serve.Bad("adam_params", "%s is out of range: %+v", x.name, p)
		}
	}
	return nil
}

// optimStep changes the weights by the gradients since the last step, which are then zero.
func (s *Server) optimStep(_ *http.Request, in struct {
	ID    string      `json:"model_id"`
	Seq   int64       `json:"seq_id"`
	Adam  *adamParams `json:"adam_params"`
	Other *struct {
		Type string `json:"type"`
	} `json:"optimizer_params"`
}) (any, error) {
	return s.submit(in.ID, in.Seq, 0, func(_ context.Context, m *model) (any, error) {
		if in.Adam == nil {
			return nil, serve.Bad("adam_params", "adam_params is missing: this server has AdamW alone")
		}
		if err := in.Adam.check(); err != nil {
			return nil, err
		}
		p := *in.Adam
		err := m.learner.Configure(train.Optimization{ClipGrad: p.ClipNorm,
			AdamW: torch.AdamW{Beta1: p.Beta1, Beta2: p.Beta2, Eps: p.Eps, WeightDecay: p.WeightDecay}})
		if err != nil {
			return nil, err
		}
		result, err := m.learner.Step(p.LearningRate)
		if err == nil && !result.Applied {
			err = serve.Bad("", "the gradient's norm is %v: the step was left out, and the gradients are zero again",
				result.GradNorm)
		}
		return map[string]any{"metrics": map[string]float64{"grad_norm": result.GradNorm}}, err
	})
}
