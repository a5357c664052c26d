// Package openai_go tries each feature of `gyre serve` with OpenAI's own package for Go. It is a module of its own, so
// that Gyre does not depend on that package. The test serves a small random policy with the program that make build has
// made, or asks a server that runs:
//
//	go test -C scripts/openai_go -v                                        # GYRE_SERVER=http://127.0.0.1:8080
//
// What an answer should be, scripts/try_serve.py says with the package for Python. Here it matters that Go's reads it.
package openai_go

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

// trial is a server that is being tried.
type trial struct {
	*testing.T
	ctx    context.Context
	client openai.Client
	model  string
}

func TestServer(t *testing.T) {
	url := os.Getenv("GYRE_SERVER")
	if url == "" {
		url = served(t)
	}
	key := os.Getenv("GYRE_SERVER_KEY")
	if key == "" {
		key = "none"
	}
	x := &trial{T: t, ctx: t.Context(), client: openai.NewClient(option.WithBaseURL(url+"/v1"),
		option.WithAPIKey(key), option.WithMaxRetries(8))}
	models, err := x.client.Models.List(x.ctx)
	if err != nil || len(models.Data) == 0 {
		t.Fatal("no model is served: ", err)
	}
	x.model = models.Data[0].ID
	one, err := x.client.Models.Get(x.ctx, x.model)
	x.check("models", err == nil && one.ID == x.model, err)
	said := x.chat()
	x.tools()
	x.completions()
	x.responses(said)
	p := x.asked()
	p.Model += "x"
	_, err = x.client.Chat.Completions.New(x.ctx, p)
	x.check("an unknown model is refused", status(err) == 404, err)
}

// served starts a server of a small random policy, and stops it at the end of the test.
func served(t *testing.T) (url string) {
	t.Helper()
	gyre, err := filepath.Abs("../../gyre")
	if err != nil {
		t.Fatal(err)
	}
	policy := filepath.Join(t.TempDir(), "policy")
	made := exec.Command(gyre, "model", "init", policy, "--hidden", "32", "--layers", "1", "--heads", "2", "--kv-heads",
		"1", "--intermediate", "32", "--vocab", "300", "--corpus", "server_test.go")
	if out, err := made.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s; make build makes ../../gyre", err, out)
	}
	server := exec.Command(gyre, "serve", policy, "--port", "0")
	told, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Signal(os.Interrupt)
		server.Wait()
	})
	for lines := bufio.NewScanner(told); lines.Scan(); {
		if found := regexp.MustCompile(`http://[^\s/]+`).FindString(lines.Text()); found != "" {
			return found
		}
	}
	t.Fatal("the server has ended without an address")
	return ""
}

func (t *trial) check(name string, holds bool, seen any) {
	t.Helper()
	if !holds {
		t.Errorf("%s: %v", name, seen)
	}
}

// asked is a greedy chat of few tokens.
func (t *trial) asked() openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: t.model, MaxTokens: openai.Int(12), Temperature: openai.Float(0),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Name a colour.")}}
}

// chat tries chat completions, and gives what a greedy one says.
func (t *trial) chat() string {
	greedy, err := t.client.Chat.Completions.New(t.ctx, t.asked())
	if err != nil {
		t.check("chat", false, err)
		return ""
	}
	said := greedy.Choices[0].Message.Content
	t.check("chat", said != "" && greedy.Usage.CompletionTokens > 0, greedy.RawJSON())

	p := t.asked()
	p.StreamOptions.IncludeUsage = openai.Bool(true)
	stream, whole := t.client.Chat.Completions.NewStreaming(t.ctx, p), openai.ChatCompletionAccumulator{}
	fits := true
	for stream.Next() {
		fits = whole.AddChunk(stream.Current()) && fits
	}
	t.check("streaming gives the same text", stream.Err() == nil && fits && whole.Choices[0].Message.Content == said,
		stream.Err())
	t.check("usage of a stream", whole.Usage.TotalTokens == greedy.Usage.TotalTokens, whole.Usage)

	p = t.asked()
	p.Logprobs, p.TopLogprobs = openai.Bool(true), openai.Int(3)
	told, err := t.client.Chat.Completions.New(t.ctx, p, option.WithJSONSet("return_token_ids", true))
	if err != nil {
		t.check("log-probs", false, err)
		return said
	}
	content := told.Choices[0].Logprobs.Content
	t.check("log-probs", int64(len(content)) == told.Usage.CompletionTokens, told.RawJSON())
	t.check("alternatives", !slices.ContainsFunc(content, func(l openai.ChatCompletionTokenLogprob) bool {
		return len(l.TopLogprobs) != 3 || l.TopLogprobs[0].Logprob != l.Logprob
	}), content)
	t.check("token ids", told.JSON.ExtraFields["prompt_token_ids"].Raw() != "" &&
		told.Choices[0].JSON.ExtraFields["token_ids"].Raw() != "", told.RawJSON())
	return said
}

// tools tries that they are taken; what calls look like depends on the model.
func (t *trial) tools() {
	p := t.asked()
	p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
		Name: "add", Description: openai.String("adds"), Parameters: openai.FunctionParameters{"type": "object",
			"properties": map[string]any{"a": map[string]any{"type": "number"}}}})}
	_, err := t.client.Chat.Completions.New(t.ctx, p)
	t.check("tools", err == nil, err)
	call := openai.ChatCompletionMessageToolCallUnionParam{OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
		ID: "call_1", Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{Name: "add", Arguments: `{"a": 1}`}}}
	p.Messages = append(p.Messages, openai.ChatCompletionMessageParamUnion{OfAssistant: &openai.ChatCompletionAssistantMessageParam{
		ToolCalls: []openai.ChatCompletionMessageToolCallUnionParam{call}}}, openai.ToolMessage("3", "call_1"),
		openai.UserMessage("So?"))
	if _, err = t.client.Chat.Completions.New(t.ctx, p); err != nil && status(err) == 400 {
		t.Log("tool calls in the history: ", err) // a template without tools refuses the role
	} else {
		t.check("tool calls in the history", err == nil, err)
	}
}

func (t *trial) completions() {
	p := openai.CompletionNewParams{Model: openai.CompletionNewParamsModel(t.model), MaxTokens: openai.Int(4),
		Temperature: openai.Float(0), Logprobs: openai.Int(2)}
	p.Prompt.OfArrayOfStrings = []string{"One, two,", "A, B,"}
	plain, err := t.client.Completions.New(t.ctx, p)
	if err != nil {
		t.check("completions", false, err)
		return
	}
	t.check("completions", len(plain.Choices) == 2 && len(plain.Choices[0].Logprobs.Tokens) == 4, plain.RawJSON())
	p.Prompt, p.Logprobs = openai.CompletionNewParamsPromptUnion{OfString: openai.String("One, two,")}, openai.Int(0)
	stream, text := t.client.Completions.NewStreaming(t.ctx, p), ""
	for stream.Next() {
		for _, c := range stream.Current().Choices {
			text += c.Text
		}
	}
	t.check("a completion streamed", stream.Err() == nil && text == plain.Choices[0].Text, stream.Err())
	p.Prompt = openai.CompletionNewParamsPromptUnion{OfArrayOfTokens: []int64{3, 4, 5}}
	_, err = t.client.Completions.New(t.ctx, p)
	t.check("a prompt of ids", err == nil, err)
}

func (t *trial) responses(said string) {
	p := responses.ResponseNewParams{Model: t.model, Temperature: openai.Float(0), MaxOutputTokens: openai.Int(12),
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Name a colour.")}}
	whole, err := t.client.Responses.New(t.ctx, p)
	t.check("responses", err == nil && whole.OutputText() == said, err)
	stream, text, kinds := t.client.Responses.NewStreaming(t.ctx, p), "", []string{}
	for stream.Next() {
		event := stream.Current()
		kinds = append(kinds, event.Type)
		if event.Type == "response.output_text.delta" {
			text += event.Delta
		}
	}
	t.check("a response streamed", stream.Err() == nil && text == said && kinds[0] == "response.created" &&
		(kinds[len(kinds)-1] == "response.completed" || kinds[len(kinds)-1] == "response.incomplete"), kinds)
}

func status(err error) int {
	if e := new(openai.Error); errors.As(err, &e) {
		return e.StatusCode
	}
	return 0
}
