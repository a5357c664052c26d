// openai_go tries each feature of a running `gyre serve` with OpenAI's own package for Go, and says what failed. It is a
// module of its own, so that Gyre does not depend on that package:
//
//	cd scripts/openai_go && go run . http://127.0.0.1:8080 [KEY]
//
// scripts/try_serve.py does the same with the package for Python, and says more of what each answer should be.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

// trial is a server that is being tried.
type trial struct {
	ctx    context.Context
	client openai.Client
	model  string
	failed []string
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: go run . URL [KEY]")
		os.Exit(2)
	}
	key := append(os.Args[2:], "none")[0]
	t := &trial{ctx: context.Background(), client: openai.NewClient(option.WithBaseURL(os.Args[1]+"/v1"),
		option.WithAPIKey(key), option.WithMaxRetries(8))}
	models, err := t.client.Models.List(t.ctx)
	if err != nil || len(models.Data) == 0 {
		fmt.Fprintln(os.Stderr, "no model is served:", err)
		os.Exit(1)
	}
	t.model = models.Data[0].ID
	one, err := t.client.Models.Get(t.ctx, t.model)
	t.check("models", err == nil && one.ID == t.model, err)
	said := t.chat()
	t.tools()
	t.completions()
	t.responses(said)
	t.refusals()
	t.many(32)
	if len(t.failed) > 0 {
		fmt.Fprintf(os.Stderr, "%d failed: %s\n", len(t.failed), strings.Join(t.failed, ", "))
		os.Exit(1)
	}
}

func (t *trial) check(name string, holds bool, seen any) {
	if holds {
		fmt.Println("ok   ", name)
		return
	}
	fmt.Printf("FAIL  %s: %v\n", name, seen)
	t.failed = append(t.failed, name)
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
	p.N, p.Seed, p.Temperature = openai.Int(3), openai.Int(7), openai.Float(1)
	p.TopP = openai.Float(0.95)
	a, problem := t.client.Chat.Completions.New(t.ctx, p)
	b, err := t.client.Chat.Completions.New(t.ctx, p)
	same := err == nil && problem == nil && len(a.Choices) == 3
	for i := 0; same && i < 3; i++ {
		same = a.Choices[i].Message.Content == b.Choices[i].Message.Content
	}
	t.check("n and seed", same, errors.Join(problem, err))

	p = t.asked()
	first := strings.Fields(said)[0][:3]
	p.Stop.OfStringArray = []string{first}
	stopped, err := t.client.Chat.Completions.New(t.ctx, p)
	t.check("stop", err == nil && !strings.Contains(stopped.Choices[0].Message.Content, first) &&
		stopped.Choices[0].FinishReason == "stop", err)

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
		fmt.Println("note  tool calls in the history:", err) // a template without tools refuses the role
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

func (t *trial) refusals() {
	for name, try := range map[string]struct {
		want int
		with option.RequestOption
	}{
		"an unknown model":     {404, option.WithJSONSet("model", t.model+"x")},
		"an unknown parameter": {400, option.WithJSONSet("temprature", 1)},
		"a JSON schema":        {400, option.WithJSONSet("response_format", map[string]string{"type": "json_object"})},
		"a prompt too long":    {400, option.WithJSONSet("messages.0.content", strings.Repeat("word ", 200_000))},
	} {
		_, err := t.client.Chat.Completions.New(t.ctx, t.asked(), try.with)
		t.check(name+" is refused", status(err) == try.want, err)
	}
}

// many asks at the same time.
func (t *trial) many(clients int) {
	var all sync.WaitGroup
	wrong := make([]error, clients)
	for i := range clients {
		all.Go(func() {
			p := t.asked()
			p.Seed, p.Temperature, p.MaxTokens = openai.Int(int64(i)), openai.Float(1), openai.Int(int64(16+i))
			reply, err := t.client.Chat.Completions.New(t.ctx, p)
			if err == nil && reply.Usage.CompletionTokens != int64(16+i) && reply.Choices[0].FinishReason != "stop" {
				err = errors.New(reply.RawJSON())
			}
			wrong[i] = err
		})
	}
	all.Wait()
	t.check(fmt.Sprint(clients, " clients"), errors.Join(wrong...) == nil, errors.Join(wrong...))
}
