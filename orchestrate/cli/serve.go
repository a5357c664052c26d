package cli

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"gyre/internal/quote"
	"gyre/internal/regular"
	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/model/chat/replies"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/anthropic"
	"gyre/orchestrate/serve/gateway"
	"gyre/orchestrate/serve/host"
	"gyre/orchestrate/serve/openai"
	"gyre/orchestrate/serve/tinker"
)

func serveCommand() *cli.Command {
	return &cli.Command{
		Name: "serve", Usage: "answer OpenAI's, Anthropic's and Tinker's API with a model", ArgsUsage: "MODEL|RUN",
		Flags: append(hostFlags(),
			text("served-model", "the model's `NAME`, if not the folder"),
			atLeast(1, "max-sequences", 64, "`N` requests decode together"),
			atLeast(1, "max-waiting", 256, "`N` more may wait"),
			atLeast(0, "kv-mib", 0, "`N` MiB of keys and values; 0 = 1024"),
			integer("port", 8080, 0, 65535, "port `N`; 0 = any free one"),
			withDefault("listen", "127.0.0.1", "`ADDR`, or ADDR:PORT"),
			text("key-env", "clients send the key in the variable `NAME`"),
			text("tls-cert", "certificate `FILE` (PEM)"),
			text("tls-key", "the certificate's key `FILE` (PEM)"),
			toggle("insecure", "beyond this machine without TLS"),
			withDefault("state", "gyre-serve", "`DIR` of Tinker's checkpoints"),
			atLeast(1, "silence", 120, "`N` seconds end a quiet Tinker client"),
			atLeast(1, "max-sessions", 1024, "at most `N` are kept"),
			atLeast(1, "session-idle", 1800, "forget sessions unused for `N` seconds")),
		Action: serveModel,
	}
}

// hostFlags are those of the commands that open a model to sample from it for as long as somebody asks.
func hostFlags() []cli.Flag {
	return append([]cli.Flag{
		adapterFlag(),
		text("chat-template", "Jinja `FILE` for the model's own"),
		atLeast(0, "max-length", 0, "`N` tokens; 0 = the model's, up to 32768"),
	}, modelFlags()...)
}

// openHost opens what the argument and hostFlags say.
func openHost(ctx context.Context, c *cli.Context) (*host.Host, error) {
	o := host.Options{Dir: c.Args().First(), Name: c.String("served-model"), MaxLength: c.Int64("max-length"),
		MaxSequences: c.Int64("max-sequences"), MaxWaiting: c.Int64("max-waiting"), KVBytes: c.Int64("kv-mib") << 20,
		Warn: func(text string) { warn(c, text) }}
	if path := c.String("chat-template"); path != "" {
		source, err := regular.Read(path)
		if err != nil {
			return nil, Usagef("--chat-template: %w", err)
		}
		o.ChatTemplate = string(source)
	}
	var err error
	if o.Adapters, o.Placement, err = openingModel(c, o.Dir); err != nil {
		return nil, err
	}
	for i, a := range o.Adapters {
		o.Adapters[i].Name = cmp.Or(a.Name, filepath.Base(a.Dir))
	}
	h, err := host.Open(ctx, o)
	return h, openingError(err)
}

// serveModel answers until a signal comes, finishes what is running then, and ends.
func serveModel(c *cli.Context) error {
	o, err := serverOptions(c)
	if err != nil {
		return err
	}
	// The first signal drains: it may not end the requests that are running.
	h, err := openHost(context.WithoutCancel(c.Context), c)
	if err != nil {
		return err
	}
	defer h.Close()
	if h.Tokenizer().HasTemplate() && !h.Tokenizer().ShowsTools() {
		warn(c, "the chat template shows no tools: a model learns of those that a request offers, and of calls in its history, "+
			"only from contents")
	}
	server := serve.New(h, o)
	sessions := gateway.New(h.Tokenizer(), c.Int("max-sessions"), time.Duration(c.Int("session-idle"))*time.Second)
	sessions.Mount(server, openai.Mount(server, sessions.Of), anthropic.Mount(server, sessions.Of))
	server.MountPage()
	trains := tinker.New(h, tinker.Options{Dir: c.String("state"), KeyNeeded: o.Key != "",
		Silence: time.Duration(c.Int64("silence")) * time.Second, Warn: func(text string) { warn(c, text) }})
	defer trains.Close()
	trains.Mount(server)
	return server.Run(c.Context, func(url string) { fmt.Fprintln(c.App.Writer, url) })
}

func serverOptions(c *cli.Context) (o serve.Options, err error) {
	address := c.String("listen")
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(address, strconv.Itoa(c.Int("port")))
	} else if c.IsSet("port") {
		return o, Usagef("--listen %s has a port, so --port cannot be given", address)
	}
	if (c.String("tls-cert") == "") != (c.String("tls-key") == "") {
		return o, Usagef("--tls-cert and --tls-key go together")
	}
	o = serve.Options{Listen: address, Cert: c.String("tls-cert"), CertKey: c.String("tls-key"),
		Insecure: c.Bool("insecure"), MaxBody: 64 << 20, MaxConnections: 2048,
		PublicPaths: []string{"/", "/healthz", "/health"}, Log: c.App.ErrWriter}
	if o.Key, err = serve.KeyFrom(c.String("key-env")); err != nil {
		return o, Usagef("--key-env: %w", err)
	}
	if err := o.Check(); err != nil {
		return o, Usagef("%w", err)
	}
	return o, nil
}

func chatCommand() *cli.Command {
	return &cli.Command{
		Name: "chat", Usage: "talk with a model in the terminal", ArgsUsage: "MODEL|RUN",
		Flags: slices.Concat(hostFlags(), []cli.Flag{text("system", "begin with the system message `TEXT`")},
			samplingFlags(), []cli.Flag{atLeast(1, "max-tokens", 1024, "end a reply after `N` tokens"), seedFlag()}),
		Action: chatWithModel,
	}
}

// chatWithModel reads a message per line and prints replies as they are drawn, until the end of the input.
func chatWithModel(c *cli.Context) error {
	drawn, err := sampling(c)
	if err != nil {
		return err
	}
	h, err := openHost(c.Context, c)
	if err != nil {
		return err
	}
	defer h.Close()
	name := h.Names()[len(h.Names())-1] // the adapter, where there is one
	policy, err := h.Policy(name)
	if err != nil {
		return err
	}
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
		drawn.Seed = generation.RowSeed(c.Uint64("seed"), turn)
		said, err := sayReply(c, h, host.Request{Sampling: drawn, Policy: policy}, past)
		if err != nil {
			return err
		}
		past = append(past, said)
	}
}

// sayReply prints the next reply of a chat, what was thought beside it, and returns its message.
func sayReply(c *cli.Context, h *host.Host, r host.Request, past []chat.Message) (m chat.Message, err error) {
	if r.Prompt, err = h.Tokenizer().EncodeMessages(past, true); err != nil {
		return m, err
	}
	stream, err := h.Generate(c.Context, r)
	if err != nil {
		return m, err
	}
	reader := h.Tokenizer().Reader(r.Prompt, nil)
	var said replies.Reply
	show := func(parts []replies.Part) {
		for _, p := range parts {
			to := c.App.Writer
			if p.Kind == replies.Thinking {
				to = c.App.ErrWriter
			} else if said.Thinking != "" && said.Content == "" {
				fmt.Fprintln(c.App.ErrWriter)
			}
			said.Add([]replies.Part{p})
			fmt.Fprint(to, quote.Lines(p.Text))
		}
	}
	for p := range stream.Pieces() {
		show(reader.Add(p.Text))
	}
	out, err := stream.Wait()
	show(reader.Finish(h.Tokenizer().Ending(out.Tokens)))
	fmt.Fprintln(c.App.Writer)
	return chat.Said(said), err
}
