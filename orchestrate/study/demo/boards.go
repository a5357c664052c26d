package demo

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/study/episodes"
)

// shownLevels is how many held-out levels are played to find one that training has changed.
const shownLevels = 32

// boards plays some held-out levels with both policies and draws one that only the trained policy solves.
func (d *Demo) boards(ctx context.Context, before, after string) error {
	played := map[string][]*episode.Episode{}
	for _, policy := range []string{before, after} {
		out := analyses + "/levels-" + map[string]string{before: "before", after: "after"}[policy] + ".jsonl"
		if _, err := d.output(ctx, d.with("eval", configFile, "--checkpoint", policy, "--output", out,
			fmt.Sprintf("validation.envs.0.groups=%d", shownLevels))...); err != nil {
			return err
		}
		episodes, err := episode.ReadFile(filepath.Join(d.Dir, out))
		if err != nil {
			return err
		}
		played[policy] = episodes
	}
	chosen := 0
	for i := range min(len(played[before]), len(played[after])) {
		if !played[before][i].Success && played[after][i].Success {
			chosen = i
			break
		}
	}
	c, err := config.Load(filepath.Join(d.Dir, configFile),
		append([]string{"model.path=" + filepath.Join(d.Dir, model)}, d.Overrides...))
	if err != nil {
		return err
	}
	tokenizer, err := chat.Load(filepath.Join(d.Dir, model))
	if err != nil {
		return err
	}
	player := rollout.NewPlayer(tokenizer, nil, c.Rollout, c.Rewards, 0)
	defer player.Close()
	fmt.Fprintln(d.Stdout, "One held-out level, before and after training: # wall, P player, X box, O target, S "+
		"player on target, √ box on target.")
	for _, policy := range []string{before, after} {
		e := played[policy][chosen]
		frames, err := player.Replay(ctx, c.Validation.Envs[0], e)
		if err != nil {
			return fmt.Errorf("showing the level: %w", err)
		}
		outcome := map[bool]string{true: "solved", false: "not solved"}[e.Success]
		fmt.Fprintf(d.Stdout, "\n%s training: %s\n\n%s", map[string]string{before: "before", after: "after"}[policy],
			outcome, strip(frames, 78))
	}
	return nil
}

// strip draws frames side by side, with the actions above each, in rows of at most width columns.
func strip(frames []rollout.Frame, width int) string {
	boards := make([]episodes.Board, len(frames))
	for i, f := range frames {
		head := cmp.Or(strings.ToLower(strings.Join(f.Actions, ", ")), "(none)")
		if i == 0 {
			head = "start"
		}
		boards[i] = episodes.Board{Head: head, Text: f.Board}
	}
	return episodes.Strip(boards, width)
}
