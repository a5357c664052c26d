package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"

	"gyre/envs"
)

// host is what the environments of one set of options share: the connection to a server, or the processes of a command.
type host struct {
	options *options
	server  *server // with option url

	processes []*process // with option command

	mu    sync.Mutex // guards what follows
	users int        // environments that are connected
	next  int        // place in processes of the environment that connects next
}

// newHost checks what the options name. Nothing is started or asked yet.
func newHost(o *options) (*host, error) {
	h := &host{options: o}
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.URL == "" {
		for range o.Processes {
			h.processes = append(h.processes, newProcess(o.Command, o.MaxBytes))
		}
		if _, err := exec.LookPath(o.Command[0]); err != nil {
			return nil, fmt.Errorf("option command: %w", err)
		}
		return h, nil
	}
	token := ""
	if o.Token != "" {
		if token = os.Getenv(o.Token); token == "" {
			return nil, fmt.Errorf("option token_variable: the environment variable %s is empty", o.Token)
		}
	}
	h.server = newServer(strings.TrimRight(o.URL, "/"), token, seconds(o.Attempt), o.MaxBytes)
	return h, nil
}

// connect finds the way to where the next environment lives: the server, or one of the processes in turn.
func (h *host) connect() transport {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.users++
	if h.server != nil {
		return h.server
	}
	h.next++
	return h.processes[h.next%len(h.processes)]
}

// disconnect gives up what connect gave. With the last environment the processes end.
func (h *host) disconnect() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users--; h.users > 0 {
		return
	}
	for _, p := range h.processes {
		p.mu.Lock()
		p.stop()
		p.mu.Unlock()
	}
}

// options are the settings of a remote environment.
type options struct {
	URL       string   `option:"url" doc:"where an HTTP server answers, such as http://127.0.0.1:8900"`
	Command   []string `option:"command" doc:"program and arguments of a local process that is talked to over stdin and stdout, instead of url"`
	Processes int      `option:"processes" range:"[1,1024]" doc:"how many processes of command share the environments"`
	Config    string   `option:"config" doc:"JSON object that is handed to the server when it makes an environment"`
	Token     string   `option:"token_variable" doc:"environment variable that holds a bearer token for url"`
	Attempt   float64  `option:"attempt_timeout" range:"(0,1000000]" doc:"seconds after which one request is given up and asked again"`
	Patience  float64  `option:"patience" range:"(0,1000000]" doc:"seconds that a call may take in all, repetitions included, where rollout.env_timeout is not shorter"`
	MaxBytes  int      `option:"max_bytes" range:"[1024,1073741824]" doc:"longest answer accepted"`
}

func (o *options) check() error {
	var problems []error
	if (o.URL == "") == (len(o.Command) == 0) {
		problems = append(problems, errors.New("options url and command: expected exactly one of them"))
	}
	if o.URL != "" {
		if u, err := url.Parse(o.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			problems = append(problems, fmt.Errorf("option url: expected an address such as http://127.0.0.1:8900, "+
				"got %q", o.URL))
		}
	}
	var config map[string]any
	if err := json.Unmarshal([]byte(o.Config), &config); err != nil || config == nil {
		problems = append(problems, fmt.Errorf("option config: expected a JSON object, got %.80q", o.Config))
	}
	return errors.Join(problems...)
}

func init() {
	spec := func(tag, doc string, plain bool) envs.Spec {
		return envs.Spec{
			Tag: tag, Type: "remote", Doc: doc, MaxActions: 50, PlainReplies: plain,
			NewOptions: func() any {
				return &options{Processes: 1, Config: "{}", Attempt: 10, Patience: 30, MaxBytes: 4 << 20}
			},
			NewFactory: func(r envs.Request) (envs.Factory, error) {
				h, err := newHost(r.Options.(*options))
				return func() (envs.Env, error) { return &env{host: h}, nil }, err
			},
		}
	}
	envs.Register(
		spec("Remote", "an environment of another program, over HTTP or stdin/stdout: replies hold actions", false),
		spec("RemoteText", "the same, whole replies being its actions", true),
	)
}
