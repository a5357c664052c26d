package sft

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"gyre/internal/dataset"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/run/metrics"
)

// validates reports whether the fixed validation set is played; a run that is given its episodes may have no
// environments for it.
func (t *Trainer) validates() bool {
	return t.Config.Run.ValidateEvery > 0 && len(t.Config.Validation.Envs) > 0
}

// readDemonstrations reads sft.data: the last sft.validation_episodes of it are held out.
func readDemonstrations(s config.SFT) ([]*episode.Episode, error) {
	episodes, err := session.ReadGiven(s.Data)
	if err != nil {
		return nil, fmt.Errorf("sft.data: %w", err)
	}
	if len(episodes) <= s.ValidationEpisodes {
		return nil, fmt.Errorf("sft.data: %s has %d episodes, expected more than sft.validation_episodes = %d",
			s.Data, len(episodes), s.ValidationEpisodes)
	}
	return episodes, nil
}

// demonstrations returns the episodes to learn from and those held out.
func (t *Trainer) demonstrations(ctx context.Context) (learnt, held *train.Batch, err error) {
	s, episodes := t.Config.SFT, t.data
	if episodes == nil {
		if episodes, err = show(ctx, t.Config, t.Sampler.Player, t.Console); err != nil {
			return nil, nil, err
		}
		if t.Config.Run.SaveRollouts == "all" && t.World.Writes() {
			if err := writeDemonstrations(t.Dir.File("demonstrations"), t.Sampler.Tokenizer, episodes,
				s.ValidationEpisodes); err != nil {
				return nil, nil, err
			}
		}
	}
	cut := len(episodes) - s.ValidationEpisodes
	return session.BatchOf(episodes[:cut]), session.BatchOf(episodes[cut:]), nil
}

// show plays the demonstrations that [sft] asks for with the environments' experts.
func show(ctx context.Context, c *config.Config, player *rollout.Player,
	console *metrics.Console) ([]*episode.Episode, error) {
	s := c.SFT
	bar := console.Bar("demonstrations", s.Episodes+s.ValidationEpisodes)
	defer bar.Close()
	episodes, err := player.Demonstrations(ctx, rollout.DemonstrationPlan{
		Envs: c.Envs, Episodes: s.Episodes +
			s.ValidationEpisodes, Seed: s.EnvSeed, Noise: s.Noise, Mistakes: s.Mistakes,
		Holdout: rollout.Holdout{Share: c.Validation.Holdout}, Progress: bar.Set,
	})
	if err != nil {
		return nil, fmt.Errorf("demonstrations: %w", err)
	}
	if len(episodes) <= s.ValidationEpisodes {
		return nil, fmt.Errorf("only %d demonstrations could be made, expected more than sft.validation_episodes = %d",
			len(episodes), s.ValidationEpisodes)
	}
	return episodes, nil
}

// Demonstrate makes the demonstrations of a configuration without any weights, and leaves them in a folder as gyre
// sft does.
func Demonstrate(ctx context.Context, c *config.Config, dir string, console *metrics.Console) error {
	opened, err := experiment.Open(c, experiment.Parts{Play: true})
	if err != nil {
		return err
	}
	player := rollout.NewPlayer(opened.Tokenizer, nil, c.Rollout, c.Rewards, c.Run.Seed)
	defer player.Close()
	episodes, err := show(ctx, c, player, console)
	if err != nil {
		return err
	}
	return writeDemonstrations(dir, opened.Tokenizer, episodes, c.SFT.ValidationEpisodes)
}

// Demonstration is one reply of an expert, with the conversation before it, under the first RAGEN's column names.
type Demonstration struct {
	DataSource string     `json:"data_source" parquet:"data_source"` // the environment's tag
	Prompt     string     `json:"prompt" parquet:"prompt"`
	Response   string     `json:"response" parquet:"response"`
	Extra      shownExtra `json:"extra_info" parquet:"extra_info"`
}

type shownExtra struct {
	Split string `json:"split" parquet:"split"`
	Index int64  `json:"index" parquet:"index"` // the environment's seed
	Turn  int    `json:"turn" parquet:"turn"`   // from 1
}

// writeDemonstrations leaves train and test, the last held episodes, as JSONL and Parquet with a row per reply, and
// the episodes, which sft.data reads.
func writeDemonstrations(dir string, tokenizer *chat.Tokenizer, episodes []*episode.Episode, held int) error {
	cut := len(episodes) - held
	for _, part := range []struct {
		split    string
		episodes []*episode.Episode
	}{{"train", episodes[:cut]}, {"test", episodes[cut:]}} {
		var rows []Demonstration
		for _, e := range part.episodes {
			rows = append(rows, rowsOf(tokenizer, e, part.split)...)
		}
		for _, ending := range []string{".jsonl", ".parquet"} {
			if err := dataset.Write(filepath.Join(dir, part.split+ending), rows); err != nil {
				return fmt.Errorf("saving the demonstrations: %w", err)
			}
		}
	}
	return episode.WriteFile(filepath.Join(dir, "episodes.jsonl"), episodes)
}

// rowsOf are the replies that an episode teaches: those of its mask.
func rowsOf(tokenizer *chat.Tokenizer, e *episode.Episode, split string) (rows []Demonstration) {
	stops := tokenizer.StopIDs()
	for i, turn := range e.Turns {
		if turn.Reply == turn.End || !e.Mask[turn.Reply] {
			continue
		}
		reply := e.IDs[turn.Reply:turn.End]
		if n := len(reply) - 1; slices.Contains(stops, reply[n]) {
			reply = reply[:n]
		}
		rows = append(rows, Demonstration{e.Tag, tokenizer.Decode(e.IDs[e.SequenceStart(turn.Reply):turn.Reply], false),
			tokenizer.Decode(reply, false),
			shownExtra{split, e.Seed, i + 1}})
	}
	return rows
}
