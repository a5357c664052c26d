package envs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"gyre/internal/nearest"
	"gyre/internal/quote"
)

// Outside is implemented by environments whose agent is not the agent loop but a program that asks the policy for
// replies itself, over HTTP. Such an episode is one call of Attend; Observe and Step are not used.
type Outside interface {
	// Attend plays an episode: it ends when the program has ended, when the reward was posted, or with an error.
	Attend(ctx context.Context, task Task) (Verdict, error)
	// Limit is how long Attend may take.
	Limit() time.Duration
	// Listen is where programs are to find the policy, "127.0.0.1:0" for any free port.
	Listen() string
}

// Task is an episode for a program outside.
type Task struct {
	Seed         int64 // equal for the members of a group, as is Group
	Group        int
	Stream       string // what it is for: train, validation or analysis
	BaseURL, Key string // of the session in which the program talks to the policy
	// Offer gives the session to the next client that asks the gateway for one.
	Offer func()
	// Posted is closed when the session has got its reward over HTTP.
	Posted <-chan struct{}
}

// Verdict is what an episode of a program earned, or with Turn one of its turns. In JSON, reward may also be an object
// of named components.
type Verdict struct {
	Reward     float64
	Components map[string]float64
	Turn       *int   // counted from 0, in the order of the replies; nil = the episode is over
	Success    *bool  // nil: it earned 1 or more
	Task       string // what the client calls the episode's task
}

// ParseVerdict reads {"reward": 1.0, "components": {"format": 0.5}, …}. A reward without a number is the sum of its
// components.
func ParseVerdict(data []byte) (v Verdict, err error) {
	var from struct {
		Reward     json.RawMessage
		Components map[string]float64
		Turn       *int
		Success    *bool
		Task       string
	}
	if err := json.Unmarshal(data, &from); err != nil {
		return v, fmt.Errorf("a reward is a JSON object such as {\"reward\": 1.0}: %w", quote.JSON(err))
	}
	if err := nearest.Keys(data, "reward", "components", "turn", "success", "task"); err != nil {
		return v, err
	}
	v = Verdict{Components: from.Components, Turn: from.Turn, Success: from.Success, Task: from.Task}
	given := string(from.Reward) != "" && string(from.Reward) != "null"
	switch {
	case given && from.Reward[0] == '{':
		if len(v.Components) > 0 {
			return v, errors.New("reward is an object of components, and so is components: expected one of them")
		}
		err = quote.JSON(json.Unmarshal(from.Reward, &v.Components))
		given = false
	case given:
		err = quote.JSON(json.Unmarshal(from.Reward, &v.Reward))
	case len(v.Components) == 0:
		err = errors.New(`there is neither "reward" nor "components"`)
	}
	if err != nil {
		return v, fmt.Errorf("reward: %w", err)
	}
	if !given {
		for _, name := range slices.Sorted(maps.Keys(v.Components)) {
			v.Reward += v.Components[name]
		}
	}
	if v.Turn != nil && *v.Turn < 0 {
		return v, fmt.Errorf("turn is %d, expected 0 or more", *v.Turn)
	}
	if len(v.Task) > longestName {
		return v, fmt.Errorf("task has %d bytes, expected at most %d", len(v.Task), longestName)
	}
	return v, v.Result().Check()
}

// Result is the verdict as an environment's.
func (v Verdict) Result() Result {
	r := Result{Reward: v.Reward, Done: v.Turn == nil, Success: v.Reward >= 1, Valid: true, Effective: true}
	if v.Success != nil {
		r.Success = *v.Success
	}
	for _, name := range slices.Sorted(maps.Keys(v.Components)) {
		r.Components = append(r.Components, Component{Name: name, Value: v.Components[name]})
	}
	return r
}
