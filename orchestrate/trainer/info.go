package trainer

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"gyre/orchestrate/config"
	"gyre/orchestrate/rundir"
	"gyre/torch"
)

// info describes the run for run.json.
func (t *Trainer) info(status, reason string) rundir.Info {
	c := t.config
	info := rundir.Info{
		Name: c.Run.Name, Status: status, Reason: reason, FirstStep: t.firstStep, Step: t.state.Step, Updated: time.Now().UTC().Truncate(time.Second),
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
