package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"gyre/envs"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/model/chat"
	"gyre/torch"
)

// Gateway is where programs outside ask the policy for replies while episodes are played. It samples in the batch of
// the round: what it wants done comes as events between two steps of the engine.
type Gateway interface {
	// Open starts the conversation of an episode.
	Open(rules Rules) (Conversation, error)
	// Events are calls to make between two steps. Nothing is received from it between two rounds, so that who asks
	// waits for the next.
	Events() <-chan func()
	// Finished takes a reply that it has asked for.
	Finished(out torch.Output)
	// GiveUp ends what is being sampled: the engine has none of it any more.
	GiveUp(err error)
	Close() error
}

// Rules are what holds for the replies of a conversation, whatever its client asks for.
type Rules struct {
	Sampling func(turn int) torch.Sampling // MaxTokens is the most that a client may ask for
	MaxTurns int
	Task     envs.Task // that a client is told of
	Members  int       // of the group
	Batch    int       // that it is played for: no session of it is opened once those of the next one are
}

// Conversation is a session at the gateway.
type Conversation interface {
	BaseURL() string
	Key() string
	// Offer gives it to the next client that asks for a session.
	Offer()
	// Posted is closed when the client has posted a reward, or has used up its turns again and again.
	Posted() <-chan struct{}
	// Close ends the conversation, with what is still being sampled for it, and gives what was said.
	Close() Record
}

// Record is what was said and earned in a conversation.
type Record struct {
	Paths     [][]Said       // from the beginning to each last reply; they share their beginnings
	Verdicts  []envs.Verdict // on turns, and at the end on the episode if its reward was posted
	UsedTurns bool           // the client asked for more turns than it may have
	Unseen    bool           // the client offered tools that the chat template does not show
}

// Said is a reply with what was said since the one before.
type Said struct {
	Number        int // from 0, in the order of the replies
	Prompt, Reply []int32
	Logprobs      []float32
}

// GatewayOptions are what a gateway is opened with.
type GatewayOptions struct {
	Listen    string // HOST:PORT
	Driver    *generation.Driver
	Tokenizer *chat.Tokenizer
	MaxLength int // tokens of a prompt and its reply
}

// OpenGateway opens a gateway. The package that has one sets it, in a program that imports that package.
var OpenGateway = func(GatewayOptions) (Gateway, error) {
	return nil, errors.New("this program has no gateway for agents outside")
}

// openGateway opens the gateway if a program of an agent outside needs it.
func (p *Player) openGateway(runners []*runner) (err error) {
	for _, r := range runners {
		switch outside := r.pool.outside; {
		case outside == nil:
		case p.gateway == nil:
			driver, ours := p.source.(*generation.Driver)
			if !ours {
				return fmt.Errorf("environment %s: its programs are answered by this process's engine, not by an "+
					"endpoint", r.source.Tag)
			}
			p.listen, p.driver = outside.Listen(), driver
			if p.gateway, err = OpenGateway(GatewayOptions{p.listen, driver, p.tokenizer,
				p.rollout.MaxLength}); err != nil {
				return fmt.Errorf("the gateway of environment %s: %w", r.source.Tag, err)
			}
		case outside.Listen() != p.listen:
			return fmt.Errorf("environments listen on %s and on %s: expected one address for all", p.listen,
				outside.Listen())
		}
	}
	return nil
}

// guests are the events of the gateway; nil without one.
func (p *Player) guests() <-chan func() {
	if p.gateway == nil {
		return nil
	}
	return p.gateway.Events()
}

// giveUp leaves nothing behind in the sampler.
func (p *Player) giveUp(cause error) error {
	err := p.source.Release()
	if p.gateway != nil {
		p.gateway.GiveUp(cause)
	}
	return err
}

// attend plays an episode whose agent is a program outside.
func (r *runner) attend(ctx context.Context, plan Plan, outside envs.Outside) error {
	if !r.begin() {
		return nil
	}
	p := r.player
	task := envs.Task{Seed: r.seed, Group: r.group, Stream: string(plan.Stream)}
	conversation, err := p.gateway.Open(Rules{MaxTurns: r.source.MaxTurns, Task: task, Members: r.round.plan.size(r.group, r.source),
		Batch: cmp.Or(plan.Batch, plan.Step),
		Sampling: func(turn int) torch.Sampling {
			sampling := plan.Sampling
			sampling.MaxTokens, sampling.Seed = r.maxTokens(), p.drawSeed(plan, r.index, turn)
			return sampling
		}})
	if err != nil {
		r.game.fail(err)
		r.finish(r.game.stop)
		return nil
	}
	task.BaseURL, task.Key = conversation.BaseURL(), conversation.Key()
	task.Offer, task.Posted = conversation.Offer, conversation.Posted()
	r.game.limit = outside.Limit()
	verdict, err := call(ctx, &r.game, func(ctx context.Context, _ envs.Env) (envs.Verdict, error) {
		return outside.Attend(ctx, task)
	})
	record := conversation.Close()
	if n := len(record.Verdicts); n == 0 || record.Verdicts[n-1].Turn != nil {
		record.Verdicts = append(record.Verdicts, verdict)
		ended := false // without a reward
		select {
		case <-conversation.Posted():
			ended = true
		default:
		}
		if record.UsedTurns && (err != nil || ended) { // the policy's fault, not the program's
			r.game.failure, r.game.stop = nil, episode.Turns
		}
	}
	if r.game.failure == nil {
		r.write(record, max(plan.Step-1, 0))
	}
	r.finish(r.game.stop)
	return nil
}

// write makes the transcript of a record. Each path is a sequence of its own; a reply that several share is trained on
// in the first of them. All was drawn by weights of one version.
func (r *runner) write(record Record, version int) {
	t, last := &r.transcript, -1
	for _, path := range record.Paths {
		for _, said := range path {
			last = max(last, said.Number)
		}
	}
	if last < 0 {
		r.game.fail(errors.New("the program has ended without a reply of the policy"))
		return
	}
	if r.game.stop == "" {
		r.game.stop = episode.Terminated
	}
	trained := map[int]bool{}
	for i, path := range record.Paths {
		own := slices.IndexFunc(path, func(s Said) bool { return !trained[s.Number] })
		var prompt []int32
		for k, said := range path {
			if prompt = append(prompt, said.Prompt...); k < own {
				prompt = append(prompt, said.Reply...)
				continue
			}
			if i > 0 && k == own {
				t.restart(nil, prompt)
			} else {
				t.observe(prompt)
			}
			if r.versions == nil {
				r.versions = []episode.Run{{Token: len(t.ids), Version: version}}
			}
			r.count(len(said.Reply))
			t.reply(said.Reply, said.Logprobs, true, r.player.cut(said.Reply, r.maxTokens()))
			trained[said.Number], prompt = true, nil
			for _, v := range record.Verdicts {
				if v.Turn != nil && *v.Turn == said.Number || v.Turn == nil && said.Number == last {
					r.earn(v, said.Reply)
				}
			}
		}
	}
	r.game.finals["branches"] = float64(len(record.Paths))
	if record.Unseen {
		r.game.finals["tools_unseen"] = 1
	}
}

// earn credits a verdict to the reply that was written last.
func (r *runner) earn(v envs.Verdict, reply []int32) {
	result := v.Result()
	var out outcome
	out.reward, out.components = r.player.weights.apply(result)
	if err := envs.CheckReward(r.game.earned + out.reward); err != nil {
		r.game.fail(fmt.Errorf("the rewards of the episode add up to %w", err))
		return
	}
	r.game.earned += out.reward
	r.player.weights.credit(&r.transcript, out, r.player.lengths(reply))
	if v.Turn == nil {
		r.game.success, r.game.start.Name = result.Success, v.Task
	}
}
