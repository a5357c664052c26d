package builtin

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/quick"

	"gyre/envs"
)

func TestLookup(t *testing.T) {
	for _, tag := range []string{"sokoban", "Frozen-Lake", "frozenlake", "frozen_lake", "BANDIT", "CoordSokoban"} {
		if _, err := envs.Lookup(tag); err != nil {
			t.Error(err)
		}
	}
	for tag, want := range map[string]string{
		"sokobann": "did you mean sokoban?", "FrozenLakes": "did you mean FrozenLake?", "chess": "gyre env list",
	} {
		if _, err := envs.Lookup(tag); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", tag, err, want)
		}
	}
	if n := len(envs.List()); n < 9 {
		t.Errorf("%d tags, expected the nine that ship", n)
	}
}

// What every environment promises, whatever its type: equal seeds and actions give equal episodes, an unknown action
// changes nothing, and nothing runs before Reset.
func TestContract(t *testing.T) {
	for _, spec := range envs.List() {
		t.Run(spec.Tag, func(t *testing.T) {
			a, b := make2(t, spec)
			if _, err := a.Step("Up"); err == nil {
				t.Error("a step before Reset is no error")
			}
			property := func(seed int64, choices []byte) bool {
				if a.Reset(seed) != nil || b.Reset(seed) != nil {
					return false
				}
				actions := a.Actions()
				for _, c := range choices {
					before := a.Render()
					if r, err := a.Step("no such action"); err != nil || r.Valid || r.Reward != 0 || a.Render() != before {
						return false
					}
					action := actions[int(c)%len(actions)]
					r, err := a.Step(action)
					s, err2 := b.Step(strings.ToUpper(action))
					if err != nil || err2 != nil || r.Reward != s.Reward || r.Done != s.Done || r.Success != s.Success ||
						!r.Valid || a.Render() != b.Render() || !r.Effective && a.Render() != before {
						return false
					}
					if r.Done {
						_, err := a.Step(action)
						return err != nil
					}
				}
				return a.Instruction() != "" && a.Instruction() == b.Instruction()
			}
			if err := quick.Check(property, &quick.Config{MaxCount: 40}); err != nil {
				t.Error(err)
			}
			for range 2 {
				if err := a.Close(); err != nil {
					t.Error("closing, twice:", err)
				}
			}
		})
	}
}

func make2(t *testing.T, spec envs.Spec) (envs.Env, envs.Env) {
	t.Helper()
	a, err := spec.Make(nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := spec.Make(nil)
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

// A tag or option that the guide does not name is a tag or option that nobody finds.
func TestGuideIsComplete(t *testing.T) {
	guide, err := os.ReadFile("../../docs/environments.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range envs.List() {
		names := []string{spec.Tag}
		for _, o := range envs.Options(spec.NewOptions()) {
			names = append(names, o.Name)
		}
		for _, name := range names {
			if !strings.Contains(string(guide), "`"+name+"`") {
				t.Errorf("docs/environments.md lacks `%s` of %s", name, spec.Type)
			}
		}
	}
}

func Example() {
	spec, err := envs.Lookup("sokoban")
	if err != nil {
		panic(err)
	}
	env, err := spec.Make(map[string]any{"level": "######\n#@ $.#\n######"})
	if err != nil {
		panic(err)
	}
	defer env.Close()
	if err := env.Reset(1); err != nil {
		panic(err)
	}
	actions, _ := env.(envs.Solver).Solve()
	for _, action := range actions {
		r, err := env.Step(action)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s: reward %.1f, done %v\n%s\n", action, r.Reward, r.Done, env.Render())
	}
	// Output:
	// Right: reward -0.1, done false
	// ######
	// #_PXO#
	// ######
	// Right: reward 10.9, done true
	// ######
	// #__P√#
	// ######
}
