package trainer

import (
	"fmt"
	"os"

	"gyre/orchestrate/chat"
	"gyre/orchestrate/config"
	"gyre/orchestrate/rollout"
	"gyre/torch"
)

// sampler is everything that plays episodes with a policy.
type sampler struct {
	tokenizer *chat.Tokenizer
	engine    *torch.Engine
	player    *rollout.Player
}

// openSampler puts an engine and a player around a loaded policy. The tokenizer is that of model.path: training does not change it.
func openSampler(c *config.Config, model *torch.Model) (*sampler, error) {
	tokenizer, err := chat.Load(c.Model.Path)
	if err != nil {
		return nil, fmt.Errorf("loading the tokenizer: %w", err)
	}
	if c.Model.ChatTemplate != "" {
		source, err := os.ReadFile(c.Model.ChatTemplate)
		if err == nil {
			err = tokenizer.SetTemplate(string(source))
		}
		if err != nil {
			return nil, fmt.Errorf("model.chat_template: %s: %w", c.Model.ChatTemplate, err)
		}
	}
	if have := model.Config.VocabSize; int64(tokenizer.VocabSize()) > have {
		return nil, fmt.Errorf("the tokenizer of %s has %d tokens but the policy's vocabulary is %d: they do not belong together", c.Model.Path, tokenizer.VocabSize(), have)
	}
	engine, err := torch.NewEngine(model, torch.EngineConfig{
		KVBytes: int64(c.Engine.KVMiB) << 20, MaxSequences: int64(c.Engine.MaxSequences),
		MaxLength: int64(c.Rollout.MaxLength), MaxBatchTokens: int64(c.Engine.MaxBatchTokens),
		PrefixCache: c.Engine.PrefixCache,
	})
	if err != nil {
		return nil, fmt.Errorf("creating the sampler: %w", err)
	}
	player, err := rollout.NewPlayer(tokenizer, engine, c.Rollout, c.Rewards, c.Run.Seed)
	if err != nil {
		engine.Close()
		return nil, err
	}
	return &sampler{tokenizer, engine, player}, nil
}

func (s *sampler) close() {
	s.player.Close() // an environment that does not close harms nobody any more
	s.engine.Close()
}

// setThreads fixes the number of kernel threads; 0 leaves the default, which is GYRE_THREADS or the number of usable cores. It reports
// whether somebody chose the number.
func setThreads(n int) (chosen bool, err error) {
	if n == 0 {
		return os.Getenv("GYRE_THREADS") != "", nil
	}
	if err := torch.SetThreads(n); err != nil {
		return true, fmt.Errorf("run.threads: %w", err)
	}
	return true, nil
}
