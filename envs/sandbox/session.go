package sandbox

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"gyre/internal/coprocess"
)

//go:embed session.py
var keeper string

// SessionConfig says what a session starts from.
type SessionConfig struct {
	Python    string // interpreter of the process that keeps it, and of its programs
	Folder    string // where the shell starts; made where it is missing
	Files     []File
	Env       map[string]string // over the sandbox's own
	MemoryMiB int               // address space of each process; 0 = not limited
	DiskMiB   int               // of all that is written
	Network   bool              // this machine's; false = none
}

// File is a file that is put into a session.
type File struct {
	Path    string      `json:"path"` // absolute
	Mode    fs.FileMode `json:"mode"` // permissions
	Content []byte      `json:"content"`
}

// Ending says how a command of a session ended.
type Ending string

// The ways in which a command ends. After all but Done the next command finds a new shell in the same folder.
const (
	Done      Ending = "done"
	Exited    Ending = "exit"      // the shell itself, by exit or a signal
	TimedOut  Ending = "timeout"   // everything in the session was ended
	Processes Ending = "processes" // more than 256 at once: everything was ended
)

// Said is what a command wrote, standard output and error together, and how it ended. Of a long output the beginning
// and the end are kept.
type Said struct {
	Output string            `json:"output"`
	End    Ending            `json:"end"`
	Status int               `json:"status"`
	Found  map[string]string `json:"found"` // of Test: the files that it asked for and that are there
}

// Session is a shell with files of its own. What it started lives until the session is closed or tested: variables,
// the folder, processes in the background. Its programs are root in namespaces without capabilities, see programs of
// this machine (/usr and the Python installation), which they cannot change, and write into memory. It takes a kernel
// that gives users namespaces. One goroutine at a time uses it.
type Session struct {
	process *coprocess.Process
	root    string // the folder that its root is mounted on, in its own namespace only
}

// Open starts a session. It keeps ctx only while it starts.
func Open(ctx context.Context, c SessionConfig) (*Session, error) {
	filter, err := sessionCalls()
	if err != nil {
		return nil, fmt.Errorf("sandbox: a session: %w", err)
	}
	root, err := os.MkdirTemp("", "gyre-session-")
	if err != nil {
		return nil, fmt.Errorf("sandbox: folder of a session: %w", err)
	}
	command := exec.Command(c.Python, "-I", "-B", "-c", walls+keeper)
	command.Env, command.Dir = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"}, "/"
	separate(command, c.Network)
	process, err := coprocess.Start(command, coprocess.Limits{Line: 8 << 20, Stderr: 4 << 10})
	if err != nil {
		os.Remove(root)
		return nil, noNamespaces(fmt.Errorf("%s does not start in some: %w", c.Python, err))
	}
	s := &Session{process, root}
	environment := c.Env
	if environment == nil {
		environment = map[string]string{}
	}
	_, err = s.ask(ctx, map[string]any{
		"root": root, "folder": c.Folder, "files": noNil(c.Files), "environment": environment, "network": c.Network,
		"memory": c.MemoryMiB << 20, "disk": c.DiskMiB << 20, "filter": filter,
	})
	if err != nil && strings.Contains(err.Error(), "PermissionError") {
		err = noNamespaces(err)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func noNamespaces(err error) error {
	return fmt.Errorf("sandbox: a session takes namespaces of its own (sysctl kernel.unprivileged_userns_clone and "+
		"user.max_user_namespaces; in Docker --security-opt seccomp=unconfined): %w (%w)", err, ErrNoWalls)
}

func noNil(files []File) []File {
	if files == nil {
		return []File{}
	}
	return files
}

// ask sends a request and reads the answer. After an error the session is closed.
func (s *Session) ask(ctx context.Context, request any) (said Said, err error) {
	line, err := json.Marshal(request)
	if err == nil {
		line, err = s.process.Ask(ctx, line)
	}
	if err == nil {
		err = json.Unmarshal(line, &said)
	}
	if err != nil {
		s.process.Stop(0)
		err = fmt.Errorf("sandbox: a session: %w%s", err, s.process.LastWords("; its last words: "))
		s.Close()
	}
	return said, err
}

// Run lets the shell execute a command, which has no input.
func (s *Session) Run(ctx context.Context, command string, limit time.Duration) (Said, error) {
	return s.ask(ctx, map[string]any{"do": "run", "command": command, "seconds": limit.Seconds()})
}

// Read gives the text of a file. A status other than 0 says that the output is the reason why it cannot.
func (s *Session) Read(ctx context.Context, path string) (Said, error) {
	return s.ask(ctx, map[string]any{"do": "file", "action": "read", "path": path})
}

// Write writes a file, and makes its folder. The answer is as Read's.
func (s *Session) Write(ctx context.Context, path, text string) (Said, error) {
	return s.ask(ctx, map[string]any{"do": "file", "action": "write", "path": path, "text": text})
}

// Replace replaces a text that stands in a file once. The answer is as Read's.
func (s *Session) Replace(ctx context.Context, path, old, text string) (Said, error) {
	return s.ask(ctx, map[string]any{"do": "file", "action": "replace", "path": path, "old": old, "text": text})
}

// Trial is how a session's work is judged.
type Trial struct {
	Files   []File // in /tests
	Command []string
	Env     map[string]string
	Limit   time.Duration
	Collect []string // names of files of /logs/verifier
}

// Test ends all that runs in the session, puts files into a new /tests and runs a command, which starts in the first
// folder, with a new /logs and a home without what the session has put into its own.
func (s *Session) Test(ctx context.Context, t Trial) (Said, error) {
	environment := t.Env
	if environment == nil {
		environment = map[string]string{}
	}
	return s.ask(ctx, map[string]any{"do": "test", "files": noNil(t.Files), "command": t.Command,
		"environment": environment, "seconds": t.Limit.Seconds(), "collect": t.Collect})
}

// Close ends all that runs in the session and forgets its files. It may be called twice.
func (s *Session) Close() {
	if s.root == "" {
		return
	}
	s.process.Stop(0)
	os.Remove(s.root) // empty: what was mounted there has gone with its namespace
	s.root = ""
}

// Interpreter finds the Python that sessions need by its name.
func Interpreter(ctx context.Context, name string) (string, error) { return interpreter(ctx, name) }
