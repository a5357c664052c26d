package sweep

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gyre/internal/settings"
)

// Slots get their own devices and their share of the threads; what does not go round is refused with the numbers.
func TestDevicesAreDealtOut(t *testing.T) {
	gpus := []string{"0", "1", "2", "3", "4"}
	for _, c := range []struct {
		study Study
		want  string // devices of the slots, or what the error says
	}{
		{Study{}, ""},
		{Study{Slots: 3}, "||"},
		{Study{Devices: gpus}, "0|1|2|3|4"},
		{Study{Devices: gpus, DevicesPerRun: 2}, "0,1|2,3"}, // one is left over
		{Study{Devices: gpus, DevicesPerRun: 2, Slots: 1}, "0,1"},
		{Study{Devices: gpus, DevicesPerRun: 6}, "a run needs 6 devices, and there are 5"},
		{Study{Devices: gpus, DevicesPerRun: 2, Slots: 3}, "3 slots of 2 devices need 6, and there are 5"},
	} {
		c.study.ThreadsPerRun = 7
		slots, err := c.study.deal()
		if err != nil {
			if !errors.Is(err, settings.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: %v, want %q", c.study, err, c.want)
			}
			continue
		}
		var got []string
		for _, s := range slots {
			got = append(got, strings.Join(s.devices, ","))
			if s.threads != 7 {
				t.Errorf("a slot has %d threads, want the 7 of threads_per_run", s.threads)
			}
		}
		if text := strings.Join(got, "|"); text != c.want {
			t.Errorf("%d slots of %d devices: %q, want %q", c.study.Slots, c.study.DevicesPerRun, text, c.want)
		}
	}
	many := Study{Slots: 10_000}
	if slots, err := many.deal(); err != nil || slots[0].threads != 1 {
		t.Errorf("%d threads of a slot (%v), want at least one", slots[0].threads, err)
	}
}

// The summary names what computes; without nvidia-smi devices keep their numbers.
func TestDevicesAreNamed(t *testing.T) {
	bin := t.TempDir()
	listed := "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)\nGPU 2: Tesla " +
		"V100-SXM2-32GB (UUID: GPU-3)\nGPU 3: NVIDIA TITAN Xp (UUID: GPU-4)\n"
	if err := os.WriteFile(filepath.Join(bin, "nvidia-smi"),
		[]byte(fmt.Sprintf("#!/bin/sh\n[ \"$1\" = -L ] && printf %%s '%s'\n", listed)), 0o755); err != nil {
		t.Fatal(err)
	}
	slots := []slot{{devices: []string{"0", "1"}}, {devices: []string{"1", "2"}}, {devices: []string{"3"}},
		{devices: []string{"7"}}}
	t.Setenv("PATH", bin)
	if got, want := deviceLabels(t.Context(), slots), []string{"2xH100", "2xmixed", "1xTITAN",
		"1xGPU7"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	t.Setenv("PATH", "")
	if got, want := deviceLabels(t.Context(), slots[:1]), []string{"2xmixed"}; !slices.Equal(got, want) {
		t.Errorf("without nvidia-smi: %q, want %q", got, want)
	}
	if got := deviceLabels(t.Context(), []slot{{}, {}}); !slices.Equal(got, []string{"1xCPU", "1xCPU"}) {
		t.Errorf("without devices: %q", got)
	}
}

// Where runs and logs lie: what a path leaves out is added, and a search beside a sweep of the same file has places of
// its own.
func TestPlaces(t *testing.T) {
	c := Condition{Label: "with KL / reward"}
	for _, x := range []struct {
		study    Study
		seed     int
		run, log string
	}{
		{Study{}, 1, "studies/s/runs/with_KL___reward/seed_1", "studies/s/logs/with_KL___reward/seed_1.log"},
		{Study{Runs: "saved", Logs: "said"}, 2, "saved/with_KL___reward/seed_2", "said/with_KL___reward/seed_2.log"},
		{Study{Runs: "saved/{condition}/x", Logs: "said/{condition}.log"}, 1, "saved/with_KL___reward/x",
			"said/with_KL___reward.log"},
		{Study{Runs: "saved/{condition}/x", Logs: "said/{condition}.log"}, 2, "saved/with_KL___reward/x_seed_2",
			"said/with_KL___reward_seed_2.log"},
		{Study{Runs: "{seed}/{condition}", beside: "search"}, 3, "3/search/with_KL___reward",
			"studies/s/search/logs/with_KL___reward/seed_3.log"},
		{Study{Runs: "saved", beside: "search"}, 1, "saved/search/with_KL___reward/seed_1",
			"studies/s/search/logs/with_KL___reward/seed_1.log"},
	} {
		x.study.Name, x.study.Output = "s", "studies"
		if got := x.study.runDir(c, x.seed); got != x.run {
			t.Errorf("runs %q, seed %d: %s, want %s", x.study.Runs, x.seed, got, x.run)
		}
		if got := x.study.logFile(c, x.seed); got != x.log {
			t.Errorf("logs %q, seed %d: %s, want %s", x.study.Logs, x.seed, got, x.log)
		}
	}
	for want, s := range map[string]Study{
		"studies/s/summary.log": {}, "all.log": {SummaryLog: "all.log"}, "all_search.log": {SummaryLog: "all.log",
			beside: "search"}, "studies/s/search/summary.log": {beside: "search"},
	} {
		s.Name, s.Output = "s", "studies"
		if got := s.summaryLog(); got != want {
			t.Errorf("the summary is %s, want %s", got, want)
		}
	}
}

// Words of the command line set keys of the study's file, with or without quotes; everything else is an override of
// the runs.
func TestWordsThatChangeAStudy(t *testing.T) {
	const text = "[study]\nname = \"s\"\nbase = \"b.toml\"\n[[axes]]\nkey = \"actor.lr\"\nvalues = [1, " +
		"2]\n[[axes]]\nkey = \"k\"\nvalues = [3]\n"
	for word, is := range map[string]func(*Study) bool{
		"study.title=No quotes":   func(s *Study) bool { return s.Title == "No quotes" },
		`study.title="Quotes"`:    func(s *Study) bool { return s.Title == "Quotes" },
		"study.seeds=7":           func(s *Study) bool { return s.Seeds == 7 },
		"search.reduction=4":      func(s *Study) bool { return s.Search.Reduction == 4 },
		"axes.0.values=[5, 6, 7]": func(s *Study) bool { return len(s.Axes[0].Values) == 3 },
		`axes.1.labels=["only"]`: func(s *Study) bool {
			return slices.Equal(s.Axes[1].Labels,
				[]string{"only"})
		},
		`study.set=["a=1", "b=[1, 2]"]`: func(s *Study) bool {
			return slices.Equal(s.Set,
				[]string{"a=1", "b=[1, 2]"})
		},
		"study.objective=val/x=y": func(s *Study) bool { return s.Objective == "val/x=y" },
	} {
		if s, err := load(t, text, word); !Changes(word) || err != nil || !is(s) {
			t.Errorf("%s: %v: %+v", word, err, s)
		}
	}
	for word, want := range map[string]string{
		"study.lenght=1":        "unknown key",
		"axes.3.key=x":          "axes has 2 elements",
		"axes.first.key=x":      "axes has 2 elements",
		"axes.0.labels=[\"a\"]": "1 labels for 2 values",
		"study.seeds=0":         "expected an integer >= 1, got 0",
		"study.seeds=many":      "expected an integer",
		"study.seed=3":          "did you mean seeds?",
	} {
		if _, err := load(t, text, word); !errors.Is(err, settings.ErrInvalid) ||
			!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "override") {
			t.Errorf("%s: %v, want %q", word, err, want)
		}
	}
	if Changes("actor.lr=1") {
		t.Error("an override of the runs is taken for the study's")
	}
}

// --values gives names or TOML values, whose labels the file's own do not survive.
func TestValuesOfTheCommandLine(t *testing.T) {
	const text = "[study]\nname = \"s\"\nbase = \"b.toml\"\n[[axes]]\nkey = \"filter.value\"\nvalues = [1.0]\nlabels " +
		"= [\"whole\"]\nnamed = { off = [\"filter.strategy=none\"] }\n"
	s, err := load(t, text, Values([]string{"0.50", "off", "[1, 2]"}, nil)...)
	if err != nil {
		t.Fatal(err)
	}
	labels, overrides := plan(t, s, 1)
	if !slices.Equal(labels, []string{"0.5", "off", "[1,2]"}) ||
		!slices.Equal(overrides, []string{"filter.value=0.5", "filter.strategy=none", "filter.value=[1,2]"}) {
		t.Errorf("%q: %q", labels, overrides)
	}
	if _, err := load(t, text, Values([]string{"1", "2"}, []string{"one"})...); err == nil ||
		!strings.Contains(err.Error(), "1 labels for 2 values") {
		t.Errorf("too few labels: %v", err)
	}
	if _, err := load(t, "[study]\nname = \"s\"\nbase = \"b.toml\"\n", Values([]string{"1"}, nil)...); err == nil ||
		!strings.Contains(err.Error(), "needs key and values") {
		t.Errorf("without an axis: %v", err)
	}
}
