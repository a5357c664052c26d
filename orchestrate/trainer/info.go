package trainer

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"gyre/orchestrate/config"
	"gyre/torch"
)

// Info is run.json: what one needs to know to repeat a run or to trust it.
type Info struct {
	Name         string    `json:"name"`
	Status       string    `json:"status"` // running | done | stopped_early | interrupted | failed
	Reason       string    `json:"reason,omitempty"`
	Step         int       `json:"step"`
	Updated      time.Time `json:"updated"`
	Gyre         string    `json:"gyre"`   // commit
	Engine       string    `json:"engine"` // libtorch, vector width, threading
	Device       string    `json:"device"` // and the type of the arithmetic
	Go           string    `json:"go"`
	Platform     string    `json:"platform"`
	Threads      int       `json:"threads"`
	Seed         uint64    `json:"seed"`
	EnvSeed      int64     `json:"env_seed"`
	ConfigSHA256 string    `json:"config_sha256"`
	Model        string    `json:"model"`
	ModelSHA256  string    `json:"model_config_sha256"`
	Exact        bool      `json:"sampler_equals_trainer"` // the self-test at start found no difference
	Replay       string    `json:"replay,omitempty"`
	PeakRSS      int64     `json:"peak_rss_bytes"`
}

func (t *Trainer) info(status, reason string) Info {
	c := t.config
	info := Info{
		Name: c.Run.Name, Status: status, Reason: reason, Step: t.state.Step, Updated: time.Now().UTC().Truncate(time.Second),
		Gyre: revision(), Engine: torch.BuildInfo(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Threads: torch.Threads(), Seed: c.Run.Seed, EnvSeed: c.Run.EnvSeed, Model: c.Model.Path, Exact: t.parityProven,
		Replay: t.options.Replay, PeakRSS: torch.PeakRSS(),
	}
	if device, err := t.actor.model.Device(); err == nil {
		info.Device = device
	}
	if resolved, err := config.Resolved(c); err == nil {
		info.ConfigSHA256 = digest(resolved)
	}
	if data, err := os.ReadFile(c.Model.Path + "/config.json"); err == nil {
		info.ModelSHA256 = digest(data)
	}
	return info
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func revision() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range build.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return build.Main.Version
}
