package cli

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gyre/internal/exitcode"
)

// sharedStudy writes a study of adapters; one of its conditions diverges.
func sharedStudy(t *testing.T, dir string) string {
	t.Helper()
	return studyOf(t, dir, `
seeds = 2
set = ["run.steps=3", "run.validate_every=2", "algorithm.kl_coef=0.01", "lora.lr_scale=10", "filter.include_zero=true"]
[[axes]]
key = "lora.rank"
values = [4]
[[conditions]]
label = "another loss and a critic"
set = ["lora.rank=3", "lora.targets=mlp", "actor.loss=cispo", "algorithm.advantage=gae"]
[[conditions]]
label = "diverges"
set = ["lora.rank=2", "actor.lr=1e20"]
`)
}

// Runs in one process, on one base and with one sampler, have the bits that they have as processes; so they have where
// the study is killed and goes on.
func TestRunsOnOneBaseHaveTheBitsOfRunsAlone(t *testing.T) {
	t.Parallel()
	alone, shared, killed := t.TempDir(), t.TempDir(), t.TempDir()
	study := func(dir string, args ...string) []map[string]any {
		t.Helper()
		code, stdout, stderr := runGyre(t, dir, append([]string{"sweep", sharedStudy(t, dir)}, args...)...)
		if code != exitcode.Failed || !strings.Contains(stderr, "2 of 6 runs failed") {
			t.Fatalf("exit code %d\n%s\n%s", code, stdout, stderr)
		}
		return summary(t, filepath.Join(dir, "studies/tiny"))
	}
	want := study(alone)
	killWhenStepsAreLogged(t, killed, orThorough(2, 6), "sweep", sharedStudy(t, killed), "--shared-base", "--slots",
		"5")
	for dir, got := range map[string][]map[string]any{shared: study(shared, "--shared-base"),
		killed: study(killed, "--shared-base")} {
		for i := range min(len(got), len(want)) { // the words of an error say which request met it
			delete(got[i], "error")
			delete(want[i], "error")
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the summary differs:\n%v\nwant\n%v", got, want)
		}
		runs, _ := filepath.Glob(filepath.Join(alone, "studies/tiny/runs/*/seed_*"))
		runs = slices.DeleteFunc(runs, func(run string) bool { return strings.Contains(run, "diverges") })
		if len(runs) != 4 {
			t.Fatalf("%d runs, want 4", len(runs))
		}
		for _, run := range runs {
			other, err := filepath.Rel(alone, run)
			if err != nil {
				t.Fatal(err)
			}
			sameRun(t, run, filepath.Join(dir, other))
		}
	}
}

// What runs on one base cannot differ in is refused by its key, and so is a study without adapters.
func TestRunsThatCannotShareABaseAreRefused(t *testing.T) {
	dir := t.TempDir()
	study := sharedStudy(t, dir)
	for word, want := range map[string]string{
		`conditions.0.set=["lora.rank=1", "model.dtype=bfloat16"]`: "model.dtype",
		`conditions.0.set=["lora.rank=1", "envs.0.groups=3"]`:      "envs.0.groups",
		`conditions.0.set=["lora.rank=1", "run.steps=9"]`:          "run.steps",
		`conditions.0.set=["lora.rank=0"]`:                         "lora.rank is 0",
		`study.devices=["0"]`:                                      "study.shared_base",
	} {
		for _, mode := range []string{"--dry-run", "--resume"} {
			code, _, stderr := runIn(t, dir, "sweep", study, "--shared-base", mode, word)
			if code != exitcode.Usage || !strings.Contains(stderr, want) {
				t.Errorf("%s: exit code %d, %s; want %q", word, code, stderr, want)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "studies")); !os.IsNotExist(err) {
		t.Error("a refused study left a folder")
	}
}
