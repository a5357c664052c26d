// Package runs lists what lies in folders: runs with their state, success, time left and size, studies, and how runs
// differ. It reads and changes nothing.
//
//	Find ──▶ folders ──▶ Summary (a row of a list)      Series (curves)      Differences (of configuration, build, end)
//
// Numbers of a run are taken from its metrics.jsonl without decoding its lines: a run of 5,000 steps takes
// milliseconds, and of a run that goes on only what was added is read again.
package runs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// deepest is how far below a folder runs are looked for: studies/NAME/runs/CONDITION/seed_N.
const deepest = 6

// Find lists the folders of runs and of studies at and below roots, each once, by name.
func Find(roots []string) (runs, studies []string, err error) {
	for _, root := range roots {
		if _, err := os.Stat(root); err != nil {
			return nil, nil, fmt.Errorf("expected a run (`gyre train` makes one) or a folder of runs: %w", err)
		}
		root = filepath.Clean(root)
		if atomicfile.Exists(root, metrics.File) {
			runs = append(runs, root)
		}
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() { // what cannot be read holds nothing for us
				return nil
			}
			name := entry.Name()
			if path != root && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, rundir.CheckpointPrefix)) ||
				strings.Count(strings.TrimPrefix(path, root), string(filepath.Separator)) > deepest {
				return filepath.SkipDir
			}
			if atomicfile.Exists(path, "state.json") && atomicfile.Exists(path, "summary.json") {
				studies = append(studies, path)
			}
			if atomicfile.Exists(path, "run.json") || atomicfile.Exists(path, rundir.HistoryFile) {
				runs = append(runs, path)
				return filepath.SkipDir
			}
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
	}
	for _, list := range []*[]string{&runs, &studies} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return runs, studies, nil
}
