package evaluation

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/endpoint"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/session"
)

// Identity is what a result follows from; results of equal identities are equal, as far as environments and servers
// outside answer alike.
type Identity struct {
	Build    string `json:"build"` // of this program
	Model    string `json:"model"` // hash of the weights, or address and name at a server
	Tasks    string `json:"tasks"` // hash
	Settings string `json:"settings"`
}

// Identify names the tasks and settings of a configuration whose tokenizer lies in a directory.
func Identify(c *config.Config, build, model, tokenizer string) (Identity, error) {
	tasks, err := hashOf(c.Validation.Envs, c.Validation.Seed, c.Validation.Holdout, filesOf(c))
	if err != nil {
		return Identity{}, err
	}
	var words []string
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
		"response_template.json", "generation_config.json"} {
		words = append(words, fileHash(filepath.Join(tokenizer, name)))
	}
	settings, err := hashOf(c.Rollout, c.Rewards, c.Run.Seed, c.Validation.Temperature, c.Validation.TopP,
		c.Model.DType, c.Model.Device, words)
	return Identity{build, model, tasks, settings}, err
}

// filesOf are the files that validations depend on.
func filesOf(c *config.Config) map[string]string {
	plays := *c
	plays.Envs, plays.Run.Loggers, plays.SFT.Data = nil, nil, "" // of training
	return plays.Files()
}

// fileHash is that of a file's content; "" of what is no file.
func fileHash(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256(content))[:16]
}

func hashOf(parts ...any) (string, error) {
	text, err := json.Marshal(parts)
	return fmt.Sprintf("%x", sha256.Sum256(text))[:16], err
}

// Hash is that of a round.
func (i Identity) Hash(round int) string {
	hash, _ := hashOf(i, round) // texts and a number
	return hash
}

// Conversations is the hash of what a server is asked, whatever build asks.
func (i Identity) Conversations() string {
	i.Build = ""
	return i.Hash(0)
}

// Keep is a folder in which results are kept: HASH.jsonl holds a round's episodes, HASH.json what else is known of
// it. "" keeps nothing.
type Keep struct {
	Dir   string
	Fresh bool // play anew, and keep that
}

// DefaultKeep is a folder of the user's cache; "" where there is none.
func DefaultKeep() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "gyre", "evaluations")
}

// kept is what is known of a round beside its episodes.
type kept struct {
	Identity   Identity             `json:"identity"`
	Round      int                  `json:"round"`
	Name       string               `json:"name"`
	Played     time.Time            `json:"played"`
	Parameters int64                `json:"parameters,omitempty"`
	Usage      *endpoint.Usage      `json:"usage,omitempty"`
	Metrics    []map[string]float64 `json:"metrics"` // of each episode
}

func (k Keep) path(hash, ending string) string { return filepath.Join(k.Dir, hash+ending) }

// find gives a round that was played before; nil where there is none, or nothing that can be read.
func (k Keep) find(of Identity, round int) (*session.Evaluation, time.Time) {
	hash := of.Hash(round)
	if k.Dir == "" || k.Fresh || of == (Identity{}) {
		return nil, time.Time{}
	}
	text, err := os.ReadFile(k.path(hash, ".json"))
	var head kept
	if err != nil || json.Unmarshal(text, &head) != nil {
		return nil, time.Time{}
	}
	episodes, err := episode.ReadFile(k.path(hash, ".jsonl"))
	if err != nil || head.Identity != of || head.Round != round || len(episodes) != len(head.Metrics) {
		return nil, time.Time{}
	}
	for i, e := range episodes {
		e.Metrics = head.Metrics[i]
	}
	out := &session.Evaluation{Episodes: episodes, Parameters: head.Parameters, Usage: head.Usage}
	out.Summarize()
	return out, head.Played
}

// add keeps a round. The description comes last: without it there is no result.
func (k Keep) add(of Identity, round int, name string, e *session.Evaluation) error {
	if k.Dir == "" || of == (Identity{}) {
		return nil
	}
	head := kept{of, round, name, time.Now().UTC().Truncate(time.Second), e.Parameters, e.Usage, nil}
	for _, one := range e.Episodes {
		head.Metrics = append(head.Metrics, one.Metrics)
	}
	hash := of.Hash(round)
	if err := os.Remove(k.path(hash, ".json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := episode.WriteFile(k.path(hash, ".jsonl"), e.Episodes); err != nil {
		return fmt.Errorf("keeping the result: %w", err)
	}
	return atomicfile.Write(k.path(hash, ".json"), func(w io.Writer) error { return json.NewEncoder(w).Encode(head) })
}
