package rollout

import (
	"testing"

	_ "gyre/envs/frozenlake"
	"gyre/orchestrate/config"
)

func TestOverlapCountsSharedFirstStates(t *testing.T) {
	lake := func(groups, size int, p float64) config.Env {
		return config.Env{Tag: "FrozenLake", Groups: groups, GroupSize: 4, Options: map[string]any{"size": size, "p": p}}
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
		if o.Different > 20 || o.Different < min(2, o.HeldOut) || o.Shared != test.shared || o.HeldOut != 20 || o.Training != 3*c.Envs[0].Groups || o.Demonstrations != test.demonstrations {
			t.Errorf("%s: %+v, want %d shared", test.name, o, test.shared)
		}
	}
}
