package remote

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gyre/envs"
)

// queueOf is where an environment's calls are gathered.
func queueOf(e envs.Env) *gatherer {
	switch line := e.(*env).line.(type) {
	case *server:
		return line.queue
	case *process:
		return line.queue
	}
	return nil
}

// playAll plays episodes of some seeds in many environments at once and gives what was seen in each, and the calls
// per request.
func playAll(t testing.TB, options map[string]any, environments, episodes int, actions []string) (told [][]string,
	perRequest float64) {
	t.Helper()
	told = make([][]string, environments*episodes)
	all := make([]envs.Env, environments)
	factory := factory(t, options)
	for i := range all {
		all[i] = opened(t, factory)
	}
	var wait sync.WaitGroup
	for i, e := range all {
		wait.Go(func() {
			for n := range episodes {
				seed := n*environments + i
				if _, err := e.Reset(t.Context(), int64(seed), 0); err != nil {
					t.Error(err)
					return
				}
				told[seed] = append(told[seed], e.Observe().Text)
				for turn := range 8 {
					r, err := e.Step(t.Context(), actions[(seed*5+turn*turn*3+turn)%len(actions)])
					if err != nil {
						t.Error(err)
						return
					}
					told[seed] = append(told[seed], fmt.Sprint(e.Observe().Text, r.Reward, r.Done, r.Success, r.Info))
					if r.Done {
						break
					}
				}
			}
		})
	}
	wait.Wait()
	q := queueOf(all[0])
	return told, float64(q.calls.Load()) / float64(q.requests.Load())
}

// Many environments at once, gathered and one by one, over HTTP and in a process: the episodes are the same.
func TestManyAtOnce(t *testing.T) {
	type kind struct{ arguments, actions []string }
	kinds := map[string]kind{"walk": {[]string{"--factory", "walk:make"}, []string{"Left", "Right", "jump"}}}
	if line := python(t); exec.Command(line[0], "-c", "import gymnasium").Run() == nil {
		lake := strings.Fields("Left Down Right Up")
		kinds["gymnasium"] = kind{[]string{"--gym", "FrozenLake-v1", "--actions", strings.Join(lake, ",")}, lake}
	}
	for name, k := range kinds {
		var want [][]string
		for _, batch := range []string{"1", "64"} {
			arguments := append([]string{"--batch", batch}, k.arguments...)
			url, _ := serve(t, append(arguments, "--port", "0")...)
			for way, options := range map[string]map[string]any{
				"http": {"url": url}, "process": {"command": append(append(python(t), arguments...), "--stdio")},
			} {
				options["patience"], options["attempt_timeout"] = 300.0, 300.0
				told, perRequest := playAll(t, options, 24, 4, k.actions)
				if want == nil {
					want = told
				}
				if !reflect.DeepEqual(told, want) || len(told[0]) < 2 {
					t.Errorf("%s, %s, batch %s: other episodes", name, way, batch)
				}
				if gathered := perRequest > 1.5; gathered != (batch == "64") {
					t.Errorf("%s, %s, batch %s: %.1f calls per request", name, way, batch, perRequest)
				}
			}
		}
	}
}

// One environment that hangs among many on a server fails its episode; the others, which were asked in the same
// requests, go on.
func TestOneOfManyHangs(t *testing.T) {
	url, _ := serve(t, "--factory", "walk:make", "--port", "0")
	options := map[string]any{"url": url, "config": fmt.Sprintf(`{"fault": "hang", "once": %q}`,
		filepath.Join(t.TempDir(), "happened")),
		"attempt_timeout": 3.0, "patience": 300.0}
	const many = 16
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	var all, well sync.WaitGroup
	var failed atomic.Int32
	well.Add(many - 1)
	factory := factory(t, options)
	for seed := range int64(many) {
		e := opened(t, factory)
		all.Go(func() {
			if _, err := e.Reset(ctx, seed, 0); err != nil {
				t.Error(err)
			}
			for cell := range 2 {
				if r, err := e.Step(ctx, "Right"); err != nil {
					failed.Add(1)
					return
				} else if r.Info["cell"] != float64(cell+1) {
					t.Errorf("seed %d: step %d leads to cell %v", seed, cell+1, r.Info["cell"])
				}
			}
			well.Done()
		})
	}
	well.Wait() // for all but one, which would otherwise be asked for until its patience is at an end
	giveUp()
	all.Wait()
	if failed.Load() != 1 {
		t.Errorf("%d episodes failed, want one", failed.Load())
	}
}

// BenchmarkServer measures 32 environments at once: the time of a call, and the calls that a request holds.
func BenchmarkServer(b *testing.B) {
	for _, batch := range []string{"1", "64"} {
		arguments := []string{"--batch", batch, "--factory", "walk:make"}
		url, _ := serve(b, append(arguments, "--port", "0")...)
		for way, options := range map[string]map[string]any{
			"http": {"url": url}, "process": {"command": append(append(python(b), arguments...), "--stdio")},
		} {
			b.Run(way+"/batch="+batch, func(b *testing.B) {
				calls, perRequest := 0, 0.0
				for b.Loop() {
					var told [][]string
					told, perRequest = playAll(b, options, 32, 8, []string{"Left", "Right"})
					for _, episode := range told {
						calls += len(episode)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(calls), "µs/call")
				b.ReportMetric(perRequest, "calls/request")
			})
		}
	}
}
