package rollout

import (
	"testing"

	_ "gyre/envs/frozenlake"
	"gyre/orchestrate/config"
)

func TestOverlapCountsSharedFirstStates(t *testing.T) {
	lake := func(groups, size int, p float64) config.Env {
		return config.Env{Tag: "FrozenLake", Groups: groups, GroupSize: 4,
			Options: map[string]any{"size": size, "p": p}}
	}
	c := &config.Config{Run: config.Run{Steps: 3, EnvSeed: 10}, Envs: []config.Env{lake(5, 4, 0.8)}}
	c.Validation.Envs, c.Validation.Seed = []config.Env{lake(20, 4, 0.8)}, 1000
	c.SFT.EnvSeed = 1010
	for _, test := range []struct {
		name           string
		demonstrations int
		change         func()
		shared         int
	}{
		{"other seeds", 0, func() {}, 0},
		{"demonstrations reach into the held-out seeds", 8, func() {}, 8},
		{"training does", 0, func() { c.Run.EnvSeed = 990 }, 5}, // seeds 990 to 1004 against 1000 to 1019
		{"without holes a board of two cells has two states", 0, func() {
			c.Envs, c.Validation.Envs = []config.Env{lake(50, 2, 1)}, []config.Env{lake(20, 2, 1)}
		}, 20},
	} {
		test.change()
		o, err := CountOverlap(t.Context(), c, test.demonstrations)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if o.Different > 20 || o.Different < min(2, o.HeldOut) || o.Shared != test.shared || o.HeldOut != 20 ||
			o.Training != 3*c.Envs[0].Groups || o.Demonstrations != test.demonstrations {
			t.Errorf("%s: %+v, want %d shared", test.name, o, test.shared)
		}
	}
}

// With several sources every one of them counts, in training, validation and demonstrations, which take the sources
// in turn.
func TestOverlapOfSeveralSources(t *testing.T) {
	lake := func(groups, size int) config.Env {
		return config.Env{Tag: "FrozenLake", Groups: groups, GroupSize: 2,
			Options: map[string]any{"size": size, "p": 0.8}}
	}
	c := &config.Config{Run: config.Run{Steps: 1, EnvSeed: 10}, Envs: []config.Env{lake(2, 5), lake(3, 6)}}
	c.Validation.Envs, c.Validation.Seed = []config.Env{lake(4, 5), lake(6, 6)}, 1000
	c.SFT.EnvSeed = 2000
	for _, x := range []struct {
		name              string
		train, shown      int64 // the first seeds
		n, shared, unique int
	}{
		{"nothing", 10, 2000, 0, 0, 5},
		// Validation: seeds 1000 to 1003 of size 5 and 1004 to 1009 of size 6. Training: 1000 and 1001 of size 5,
		// 1002 to 1004 of size 6.
		{"training", 1000, 2000, 0, 3, 5},
		// Demonstrations: even seeds of size 5, odd ones of size 6.
		{"demonstrations", 10, 1000, 10, 2 + 3, 5 + 10},
		{"odd demonstrations", 10, 1001, 7, 2 + 2, 5 + 7},
	} {
		c.Run.EnvSeed, c.SFT.EnvSeed = x.train, x.shown
		o, err := CountOverlap(t.Context(), c, x.n)
		if err != nil {
			t.Fatal(err)
		}
		if o.Shared != x.shared || o.Distinct != x.unique || o.HeldOut != 10 || o.Different != 10 || o.Training != 5 {
			t.Errorf("%s: %+v, want %d shared of %d", x.name, o, x.shared, x.unique)
		}
	}
}
