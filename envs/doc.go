// Package envs defines what an environment is and keeps the registry of tags.
//
// An environment is a small game that a policy plays by text: Observe shows the state, Step takes one action, Reset
// starts the episode of a seed. Each lives in its own folder and registers its tags when it is imported; importing
// gyre/envs/builtin for effect registers all that ship with Gyre.
//
//	spec, err := envs.Lookup("sokoban")
//	env, err := spec.Make(map[string]any{"boxes": 2, "size": []any{8, 8}})
//	start, err := env.Reset(ctx, 10000, 0)
//	fmt.Println(start.Instruction)
//	fmt.Println(env.Observe())
//	result, err := env.Step(ctx, "Up")
//
// All randomness of an episode comes from its seed, so that the members of a group, reset with one seed, start from the
// same state and see the same luck. How replies become actions, how many actions an episode has and what happens when
// an environment fails is the business of gyre/orchestrate/loop/rollout.
//
// The games, their rewards and their calibration follow RAGEN (arXiv 2504.20073 and 2604.06268), Sokoban levels are
// generated in the manner of gym-sokoban, FrozenLake follows Gymnasium. Image observations (RAGEN's
// VisualSimpleSokoban) are not supported: Gyre trains text policies.
package envs
