package cli

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/gateway"
	"gyre/orchestrate/serve/host"
	"gyre/orchestrate/serve/openai"
	"gyre/orchestrate/serve/page"
	"gyre/orchestrate/serve/tinker"
)

func serveCommand() *cli.Command {
	return &cli.Command{
		Name: "serve", Usage: "answer OpenAI's and Tinker's API with a model or a run's policy", ArgsUsage: "MODEL|RUN",
		Flags: append(hostFlags(),
			integer("port", 8080, 0, 65535, "port `N`; 0 = any free one"),
			withDefault("listen", "127.0.0.1", "`ADDR`, or ADDR:PORT"),
			text("key-env", "clients send the key in the variable `NAME`"),
			text("tls-cert", "certificate `FILE` (PEM)"),
			text("tls-key", "the certificate's key `FILE` (PEM)"),
			toggle("insecure", "beyond this machine without TLS"),
			atLeast(1, "max-body-mib", 64, "refuse requests above `N` MiB"),
			atLeast(1, "max-connections", 2048, "at most `N` are open"),
			withDefault("state", "gyre-serve", "`DIR` of Tinker's checkpoints"),
			atLeast(1, "silence", 120, "`N` seconds end a quiet Tinker client"),
			atLeast(1, "max-models", 32, "`N` Tinker models learn at once"),
			atLeast(1, "max-sessions", 1024, "at most `N` are kept"),
			atLeast(1, "session-idle", 1800, "forget sessions unused for `N` seconds")),
		Action: serveModel,
	}
}

// hostFlags are those of the commands that open a model to sample from it for as long as somebody asks.
func hostFlags() []cli.Flag {
	return []cli.Flag{
		text("served-model", "the model's `NAME`, if not the folder"),
		adapterFlag(), draftFlag(),
		text("chat-template", "Jinja `FILE` for the model's own"),
		atLeast(0, "max-length", 0, "`N` tokens; 0 = the model's, up to 32768"),
		atLeast(1, "max-sequences", 64, "`N` requests decode together"),
		atLeast(1, "max-waiting", 256, "`N` more may wait"),
		atLeast(0, "kv-mib", 0, "`N` MiB of keys and values; 0 = 1024"),
		atLeast(0, "threads", 0, "use `N` CPU threads; 0 = one per core"), deviceFlag(), dtypeFlag(),
	}
}

// openHost opens what the argument and hostFlags say.
func openHost(ctx context.Context, c *cli.Context) (*host.Host, error) {
	o := host.Options{Dir: c.Args().First(), Name: c.String("served-model"), MaxLength: c.Int64("max-length"),
		MaxSequences: c.Int64("max-sequences"), MaxWaiting: c.Int64("max-waiting"), KVBytes: c.Int64("kv-mib") << 20,
		Draft: c.String("draft"),
		Warn:  func(text string) { warn(c, text) }}
	adapters, err := givenAdapters(c)
	if err != nil {
		return nil, err
	}
	for _, a := range adapters {
		if a.name == "" {
			a.name = filepath.Base(a.dir)
		}
		o.Adapters = append(o.Adapters, host.Adapter{Name: a.name, Dir: a.dir})
	}
	if path := c.String("chat-template"); path != "" {
		source, err := os.ReadFile(path)
		if err != nil {
			return nil, Usagef("--chat-template: %w", err)
		}
		o.ChatTemplate = string(source)
	}
	on, err := placement(c)
	if err != nil {
		return nil, err
	}
	if o.Placement, err = settleBeside(on, o.Dir, adapters); err != nil {
		return nil, err
	}
	if err := openThreads(c, o.Placement); err != nil {
		return nil, err
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
	server := serve.New(h, o)
	sessions := gateway.New(h.Tokenizer(), gateway.Limits{Sessions: c.Int("max-sessions"),
		Idle: time.Duration(c.Int("session-idle")) * time.Second})
	sessions.Mount(server, openai.Mount(server, sessions.Of))
	page.Mount(server)
	trains := tinker.New(h, tinker.Options{Dir: c.String("state"), KeyNeeded: o.Key != "",
		Silence: time.Duration(c.Int64("silence")) * time.Second, MaxModels: c.Int("max-models"),
		Warn: func(text string) { warn(c, text) }})
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
		Insecure: c.Bool("insecure"), MaxBody: c.Int64("max-body-mib") << 20,
		MaxConnections: c.Int("max-connections"), PublicPaths: []string{"/", "/healthz", "/health"},
		Log: c.App.ErrWriter}
	if o.Key, err = serve.KeyFrom(c.String("key-env")); err != nil {
		return o, Usagef("--key-env: %w", err)
	}
	if err := o.Check(); err != nil {
		return o, Usagef("%w", err)
	}
	return o, nil
}
