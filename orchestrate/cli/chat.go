package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/internal/quote"
	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/serve/host"
)

func chatCommand() *cli.Command {
	return &cli.Command{
		Name: "chat", Usage: "talk with a model in the terminal", ArgsUsage: "MODEL|RUN",
		Flags: append(hostFlags(),
			text("system", "begin with the system message `TEXT`"),
			number("temperature", 1, 0, 1e4, "divide the logits by `T`; 0 = greedy"),
			atLeast(0, "top-k", 0, "keep the `K` likeliest tokens; 0 = off"),
			number("top-p", 1, 1e-6, 1, "keep the likeliest of mass `P`; 1 = off"),
			number("min-p", 0, 0, 1, "drop below `P` times the likeliest; 0 = off"),
			atLeast(1, "max-tokens", 1024, "end a reply after `N` tokens"),
			&cli.Uint64Flag{Name: "seed", Usage: "seed of all draws"}),
		Action: chatWithModel,
	}
}

// chatWithModel reads a message per line and prints replies as they are drawn, until the end of the input.
func chatWithModel(c *cli.Context) error {
	h, err := openHost(c.Context, c)
	if err != nil {
		return err
	}
	defer h.Close()
	name := h.Names()[len(h.Names())-1] // the adapter, where there is one
	var past []chat.Message
	if system := c.String("system"); system != "" {
		past = []chat.Message{{Role: "system", Content: system}}
	}
	fmt.Fprintf(c.App.ErrWriter, "%s: a line is a message; Ctrl-D ends\n", name)
	input := readLines(c.Context, c.App.Reader)
	for turn := 0; ; turn++ {
		fmt.Fprint(c.App.ErrWriter, "> ")
		var line string
		var more bool
		select {
		case line, more = <-input:
		case <-c.Context.Done():
		}
		if !more {
			return context.Cause(c.Context)
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		past = append(past, chat.Message{Role: "user", Content: line})
		said, err := sayReply(c, h, name, past, turn)
		if err != nil {
			return err
		}
		past = append(past, chat.Message{Role: "assistant", Content: said})
	}
}

// sayReply prints the next reply of a chat and returns its text.
func sayReply(c *cli.Context, h *host.Host, name string, past []chat.Message, turn int) (string, error) {
	ids, err := h.Tokenizer().EncodeMessages(past, true)
	if err != nil {
		return "", err
	}
	policy, err := h.Policy(name)
	if err != nil {
		return "", err
	}
	r := host.Request{Prompt: ids, Sampling: host.Sampling(), Policy: policy}
	r.Sampling.Temperature, r.Sampling.TopK = c.Float64("temperature"), c.Int("top-k")
	r.Sampling.TopP, r.Sampling.MinP = c.Float64("top-p"), c.Float64("min-p")
	r.Sampling.MaxTokens, r.Sampling.Seed = c.Int("max-tokens"), generation.RowSeed(c.Uint64("seed"), turn)
	stream, err := h.Generate(c.Context, r)
	if err != nil {
		return "", err
	}
	var said strings.Builder
	for p := range stream.Pieces() {
		said.WriteString(p.Text)
		fmt.Fprint(c.App.Writer, quote.Lines(p.Text))
	}
	fmt.Fprintln(c.App.Writer)
	_, err = stream.Wait()
	return said.String(), err
}
