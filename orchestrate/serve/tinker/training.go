package tinker

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"

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
	var in forwardBackward
	problem := unmarshal(body, &in) // in the middle of a message too, it says whose it is
	return s.submit(in.Model, int64(in.Seq), int64(len(body)), func(ctx context.Context, m *model) (any, error) {
		if problem != nil {
			return nil, serve.Bad("", "the body is no ForwardBackwardRequest: %v", problem)
		}
		return m.passes(ctx, &in)
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

// readAdam refuses null, which is how clients write NaN and infinity: as 0 it would train nothing, or otherwise.
func readAdam(data json.RawMessage) (p adamParams, err error) {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(data, &given); err != nil || given == nil {
		return p, serve.Bad("adam_params", "adam_params is missing, or no object: this server has AdamW alone")
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if string(given[name]) == "null" {
			return p, serve.Bad("adam_params", "%s is null, expected a number (NaN and infinity arrive as null)", name)
		}
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, serve.Bad("adam_params", "adam_params: %v", err)
	}
	return p, p.check()
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
	ID    string          `json:"model_id"`
	Seq   int64           `json:"seq_id"`
	Adam  json.RawMessage `json:"adam_params"`
	Other *struct {
		Type string `json:"type"`
	} `json:"optimizer_params"`
}) (any, error) {
	return s.submit(in.ID, in.Seq, 0, func(_ context.Context, m *model) (any, error) {
		p, err := readAdam(in.Adam)
		if err != nil {
			return nil, err
		}
		err = m.learner.Configure(train.Optimization{ClipGrad: p.ClipNorm,
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
