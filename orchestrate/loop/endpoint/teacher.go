package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/sourcegraph/conc/pool"
)

// Teacher gives the log-probs that a server's model has of given tokens. Its methods may be called by any goroutine.
type Teacher struct {
	client *client
	model  string
	most   int
	echo   bool // the server knows OpenAI's echo, not vLLM's prompt_logprobs
}

// OpenTeacher finds out how a server is asked for the log-probs of tokens.
func OpenTeacher(ctx context.Context, c Config) (*Teacher, error) {
	client, err := newClient(c)
	if err != nil {
		return nil, err
	}
	t := &Teacher{client: client, most: max(c.Concurrency, 16)}
	if t.model, err = client.findModel(ctx, c.Model); err != nil {
		return nil, err
	}
	probe := []int32{1, 2, 3}
	if _, err = t.score(ctx, probe); refuses(err) {
		t.echo = true
		if _, other := t.score(ctx, probe); other == nil {
			err = nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s gives no log-probs of tokens (a prompt of token ids with prompt_logprobs = 0, or "+
			"echo and logprobs): %w", client.base, err)
	}
	return t, nil
}

// refuses tells whether a server does not know how it was asked.
func refuses(err error) bool {
	status, ok := errors.AsType[*statusError](err)
	return errors.Is(err, errNoScores) || ok && status.code != http.StatusUnauthorized &&
		status.code != http.StatusForbidden
}

// Close ends the connections.
func (t *Teacher) Close() {
	if t != nil {
		t.client.http.CloseIdleConnections()
	}
}

// Logprobs gives the log-prob of each token of each sequence given the ones before, at temperature 1; 0 of the first.
func (t *Teacher) Logprobs(ctx context.Context, sequences [][]int32) ([][]float32, error) {
	out := make([][]float32, len(sequences))
	all := pool.New().WithContext(ctx).WithCancelOnError().WithFirstError().WithMaxGoroutines(t.most)
	for i, ids := range sequences {
		all.Go(func(ctx context.Context) (err error) {
			out[i], err = t.score(ctx, ids)
			return err
		})
	}
	return out, all.Wait()
}

// scoring asks for the log-probs of a prompt.
type scoring struct {
	Model          string  `json:"model"`
	Prompt         []int32 `json:"prompt"`
	MaxTokens      int     `json:"max_tokens"`
	Temperature    float64 `json:"temperature"`
	PromptLogprobs *int    `json:"prompt_logprobs,omitempty"`
	Echo           bool    `json:"echo,omitempty"`
	Logprobs       *int    `json:"logprobs,omitempty"`
}

// scores are an answer: one form or the other.
type scores struct {
	Choices []struct {
		PromptLogprobs []map[string]struct{ Logprob *float32 } `json:"prompt_logprobs"`
		Logprobs       struct {
			Tokens []*float32 `json:"token_logprobs"`
		} `json:"logprobs"`
	} `json:"choices"`
}

var errNoScores = errors.New("the answer has no log-probs of the prompt")

// score asks for one sequence.
func (t *Teacher) score(ctx context.Context, ids []int32) ([]float32, error) {
	none, ask := 0, scoring{Model: t.model, Prompt: ids, MaxTokens: 1, Temperature: 1}
	if t.echo {
		ask.Echo, ask.Logprobs = true, &none
	} else {
		ask.PromptLogprobs = &none
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return nil, err
	}
	text, err := t.client.call(ctx, "/completions", body)
	var answer scores
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil {
		return nil, err
	}
	if len(answer.Choices) != 1 {
		return nil, fmt.Errorf("%s: %d choices in an answer, expected 1", t.client.base, len(answer.Choices))
	}
	out, choice := make([]float32, len(ids)), answer.Choices[0]
	for i := 1; i < len(ids); i++ {
		var found *float32
		if i < len(choice.PromptLogprobs) {
			found = choice.PromptLogprobs[i][strconv.Itoa(int(ids[i]))].Logprob
		} else if i < len(choice.Logprobs.Tokens) && t.echo {
			found = choice.Logprobs.Tokens[i]
		}
		if found == nil {
			return nil, fmt.Errorf("%s: token %d of %d: %w", t.client.base, i, len(ids), errNoScores)
		}
		out[i] = *found
	}
	return out, nil
}
