package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"gyre/orchestrate/config"
)

// Info is run.json: what one needs to know to repeat a run or to trust it.
type Info struct {
	// ID tells this run from others of the same name; a resumed run keeps it.
	ID     string `json:"id"`
	Name   string `json:"name"`
	Status string `json:"status"` // running | done | paused (--until) | stopped_early | interrupted | failed
	Reason string `json:"reason,omitempty"`
	// FirstStep is the first step that the run's metrics can have: above 0 where it continues another directory's
	// checkpoint.
	FirstStep    int       `json:"first_step"`
	Step         int       `json:"step"`
	Updated      time.Time `json:"updated"`
	Gyre         string    `json:"gyre"`   // commit
	Engine       string    `json:"engine"` // libtorch, vector width, threading
	Device       string    `json:"device"` // and the type of the arithmetic
	Go           string    `json:"go"`
	Platform     string    `json:"platform"`
	Threads      int       `json:"threads"`
	Ranks        int       `json:"ranks,omitempty"` // processes, where there are several
	Shard        string    `json:"shard,omitempty"` // what they share out: none, optimizer or full
	Seed         uint64    `json:"seed"`
	EnvSeed      int64     `json:"env_seed"`
	ConfigSHA256 string    `json:"config_sha256"`
	Model        string    `json:"model"`
	ModelSHA256  string    `json:"model_config_sha256"`
	// Files are the user's files that the configuration names, with their SHA-256. Copies of the small ones are in
	// code/.
	Files   map[string]string `json:"files_sha256"`
	Exact   bool              `json:"sampler_equals_trainer"` // the self-test at start found no difference
	Replay  string            `json:"replay,omitempty"`
	PeakRSS int64             `json:"peak_rss_bytes"`
	// Changes are the keys and files that a resumption changed: the run is not of one configuration.
	Changes []config.Change `json:"changes,omitempty"`
}

// ReadInfo reads a directory's run.json; nil without one. A run that is said to be running, and whose process is
// gone, has failed.
func ReadInfo(dir string) (*Info, error) {
	info, err := readInfo(dir)
	if err == nil && info != nil && info.Status == "running" && abandoned(dir) {
		info.Status, info.Reason = "failed", "its process is gone and has not recorded why (killed, or its machine "+
			"went down); --resume goes on from its newest checkpoint"
	}
	return info, err
}

// readInfo is run.json as it stands there.
func readInfo(dir string) (*Info, error) {
	path := filepath.Join(dir, "run.json")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info := &Info{}
	if err := json.Unmarshal(data, info); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return info, nil
}

// abandoned reports whether nobody writes to a directory any more in which a run was written: its lock is there and
// free.
func abandoned(dir string) bool {
	lock, err := os.Open(filepath.Join(dir, ".lock"))
	if err != nil {
		return false
	}
	defer lock.Close()
	return syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil
}

// ArithmeticOf is the type in which the run computed that a path belongs to: its directory, one of its checkpoints,
// or a model in one. All are "" where there is none, or its run.json does not tell.
func ArithmeticOf(path string) (dtype, run string) {
	if path == "" {
		return "", ""
	}
	dir := filepath.Clean(path)
	for range 3 {
		if info, err := ReadInfo(dir); err == nil && info != nil {
			if at := strings.LastIndex(info.Device, ", "); at >= 0 {
				return info.Device[at+2:], dir
			}
			return "", ""
		}
		dir = filepath.Dir(dir)
	}
	return "", ""
}

// WriteInfo saves run.json.
func (d *Dir) WriteInfo(info Info) error {
	info.ID = d.ID
	data, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return fmt.Errorf("run.json: %w", err)
	}
	return writeFile(d.File("run.json"), append(data, '\n'))
}
