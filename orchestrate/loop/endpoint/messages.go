package endpoint

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/model/chat"
)

// request is the body of OpenAI's completions, with the fields of vLLM that take and return token ids.
type request struct {
	Model               string    `json:"model"`
	Messages            []message `json:"messages,omitempty"`
	Tools               []tool    `json:"tools,omitempty"`
	Prompt              []int32   `json:"prompt,omitempty"`
	MaxTokens           int       `json:"max_tokens,omitempty"`
	MaxCompletionTokens int       `json:"max_completion_tokens,omitempty"`
	Temperature         float64   `json:"temperature"`
	TopP                float64   `json:"top_p"`
	TopK                *int      `json:"top_k,omitempty"`
	MinP                float64   `json:"min_p,omitempty"`
	Seed                *uint64   `json:"seed,omitempty"`
	Stop                []string  `json:"stop,omitempty"`
	IncludeStop         bool      `json:"include_stop_str_in_output,omitempty"`
	ReturnTokenIDs      bool      `json:"return_token_ids,omitempty"`
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type tool struct {
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Parameters  any    `json:"parameters,omitempty"`
}

// reply is what a server answers.
type reply struct {
	PromptTokenIDs []int32  `json:"prompt_token_ids,omitempty"`
	Choices        []choice `json:"choices"`
	Usage          counts   `json:"usage"`
}

type choice struct {
	Message struct {
		Content          *string `json:"content,omitempty"`
		Reasoning        string  `json:"reasoning,omitempty"`
		ReasoningContent string  `json:"reasoning_content,omitempty"`
		ToolCalls        []struct {
			Function struct {
				Name      string `json:"name"`
				Arguments string `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls,omitempty"`
	} `json:"message"`
	TokenIDs     []int32 `json:"token_ids,omitempty"`
	FinishReason string  `json:"finish_reason"`
}

// counts are the tokens of a request.
type counts struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens,omitempty"`
	} `json:"prompt_tokens_details"`
}

// sampled is a request with what a generation.Request says of the sampling. Seeds of servers are 31 bits.
func (s *Server) sampled(r generation.Request) request {
	p := r.Sampling
	seed := p.Seed >> 33
	out := request{Model: s.Model, MaxTokens: p.MaxTokens, Temperature: p.Temperature, TopP: p.TopP,
		MinP: p.MinP, Seed: &seed}
	if p.TopK > 0 || s.Exact { // a server may have a default of its own
		out.TopK = &p.TopK
	}
	return out
}

// exactly asks with and for token ids.
func (s *Server) exactly(r generation.Request) request {
	out := s.sampled(r)
	out.Prompt, out.Stop, out.IncludeStop, out.ReturnTokenIDs = r.Prompt, r.StopStrings, len(r.StopStrings) > 0, true
	return out
}

// inText asks with and for text. It is cut here where it should stop: servers leave out what they stopped at.
func (s *Server) inText(r generation.Request, said generation.Chat) request {
	out := s.sampled(r)
	out.Messages = spoken(said.Messages)
	for _, t := range said.Tools {
		out.Tools = append(out.Tools, tool{"function", function{t.Name, t.Description, t.Parameters}})
	}
	return out
}

// spoken are messages of system, user and assistant. What a tool says is the user's: a server would look for its own
// call before it, and replies are text here.
func spoken(messages []chat.Message) (out []message) {
	for _, m := range messages {
		if m.Role == "tool" {
			m.Role, m.Content = "user", "<tool_response>\n"+m.Content+"\n</tool_response>"
		}
		out = append(out, message{m.Role, m.Content})
	}
	return out
}

// idsOf are the token ids of a choice, which are some.
func (s *Server) idsOf(c choice) ([]int32, error) {
	if len(c.TokenIDs) == 0 {
		return nil, fmt.Errorf("%s: an answer without token_ids, which it returned before", s.client.base)
	}
	for _, id := range c.TokenIDs {
		if id < 0 || int(id) >= s.tokenizer.VocabSize() {
			return nil, fmt.Errorf("%s: token_ids hold %d, expected 0 to %d", s.client.base, id,
				s.tokenizer.VocabSize()-1)
		}
	}
	return c.TokenIDs, nil
}

// encode gives the text of a choice tokens, and the token that ends a reply unless it was cut off.
func (s *Server) encode(c choice, a answered) ([]int32, error) {
	text, stopped := textOf(c), c.FinishReason != "length"
	for _, stop := range a.stops {
		if at := strings.Index(text, stop); at >= 0 {
			text, stopped = text[:at+len(stop)], false
		}
	}
	ids, err := s.tokenizer.EncodeOrdinary(strings.TrimPrefix(strings.TrimSpace(text), a.chat.Prefix))
	if stopped || len(ids) == 0 {
		ids = append(ids, s.tokenizer.StopIDs()[0])
	}
	return ids, err
}

// textOf is what a choice says: its thought, where the server keeps that apart, its content and its calls of tools.
func textOf(c choice) (text string) {
	m := c.Message
	if m.Content != nil {
		text = *m.Content
	}
	if thought := m.Reasoning + m.ReasoningContent; thought != "" && !strings.Contains(text, "</think>") {
		text = "<think>" + thought + "</think>" + text
	}
	for _, call := range m.ToolCalls {
		arguments := call.Function.Arguments
		if !json.Valid([]byte(arguments)) {
			quoted, _ := json.Marshal(arguments) // a string
			arguments = string(quoted)
		}
		name, _ := json.Marshal(call.Function.Name) // a string
		text += fmt.Sprintf("\n<tool_call>{\"name\": %s, \"arguments\": %s}</tool_call>", name, arguments)
	}
	return text
}

// keyOf names a request in the journal.
func keyOf(r generation.Request, body request) (string, error) {
	text, err := json.Marshal(struct {
		ID, Seed uint64
		Body     request
	}{r.ID, r.Sampling.Seed, body})
	return fmt.Sprintf("%x", sha256.Sum256(text))[:32], err
}
