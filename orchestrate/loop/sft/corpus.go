package sft

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gyre/envs"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/model/checkpoint/policyinit"
)

// shown is how many episodes of each tag and prompt style are rendered.
const shown = 4

// corpusTags are the environments whose texts a new tokenizer learns its words from. The list is fixed: another
// environment must not change the tokens, and so the weights, of the policies that are made for these.
var corpusTags = []string{
	"Bandit", "BanditTest", "CoordFrozenLake", "FrozenLake", "CoordSokoban", "LargerSokoban", "SimpleSokoban",
	"sokoban", "SokobanDifferentGridVocab",
}

// Corpus is what the tokenizer of a new policy is learned from: every tag of these environments as the agent loop
// would show it, prompts with rules, and experts' replies where the environment knows an expert. Lines without words
// are left out. Boards are made of them: each of their cells stays one token, so that a policy sees a board and not a
// compressed picture of one.
func Corpus(ctx context.Context) ([]string, error) {
	tokenizer, err := policyinit.BytesOnly()
	if err != nil {
		return nil, err
	}
	var corpus []string
	for _, spec := range envs.List() {
		if !slices.Contains(corpusTags, spec.Tag) {
			continue
		}
		texts, err := renderCorpus(ctx, tokenizer, spec)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", spec.Tag, err)
		}
		corpus = append(corpus, texts...)
	}
	if len(corpus) == 0 {
		return nil, fmt.Errorf("no environment is registered")
	}
	return corpus, nil
}

func renderCorpus(ctx context.Context, tokenizer *chat.Tokenizer, spec envs.Spec) ([]string, error) {
	env, err := spec.Make(nil)
	if err != nil {
		return nil, err
	}
	defer env.Close()
	start, err := env.Reset(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	texts := []string{start.Instruction, strings.Join(start.Actions, " || ")}
	if _, ok := env.(envs.Solver); !ok || spec.Type == "bandit" { // a bandit's expert says nothing but the names above
		return append(texts, words(env.Observe().String())), nil
	}
	for _, style := range []string{"chat", "compact"} {
		for _, think := range []bool{true, false} {
			player := rollout.NewPlayer(tokenizer, nil, config.Rollout{Prompt: style, Think: think,
				ActionSeparator: "||", MaxTokens: 4000, MaxLength: 100_000, EnvTimeout: 30, EnvWorkers: 4}, nil, 0)
			episodes, err := player.Demonstrations(ctx, rollout.DemonstrationPlan{Episodes: shown,
				Envs: []config.Env{{Tag: spec.Tag, Groups: 1, GroupSize: 1, MaxTurns: 5, MaxActionsPerTurn: 2}}})
			if err = errors.Join(err, player.Close()); err != nil {
				return nil, err
			}
			for _, e := range episodes {
				texts = append(texts, words(tokenizer.Decode(e.IDs, true)))
			}
		}
	}
	return texts, nil
}

// word is what makes a line a sentence rather than a row of a board.
var word = regexp.MustCompile(`\p{Ll}\p{Ll}`)

func words(text string) string {
	var kept []string
	for line := range strings.Lines(text) {
		if word.MatchString(line) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}
