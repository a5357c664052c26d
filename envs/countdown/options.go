package countdown

import (
	"errors"
	"fmt"
	"strings"

	"gyre/envs"
)

// options are the settings of the game.
type options struct {
	Numbers     [2]int  `option:"numbers" range:"[2,6]" doc:"fewest and most numbers of a generated problem"`
	MaxNumber   int     `option:"max_number" range:"[1,1000000]" doc:"largest number of a generated problem; they start at 1"`
	Target      [2]int  `option:"target" doc:"smallest and largest target of a generated problem"`
	Operations  string  `option:"operations" doc:"operations that generated targets are made with, out of +-*/"`
	Problems    string  `option:"problems,train_path" doc:"play the problems of this file, chosen by the seed"`
	UseAll      bool    `option:"use_all" doc:"every number must be used; false: each at most once"`
	Score       float64 `option:"score" doc:"reward of a correct answer"`
	FormatScore float64 `option:"format_score" doc:"reward of a wrong answer that uses the right numbers"`
}

func (o *options) check() error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if o.Numbers[1] < o.Numbers[0] {
		problem("option numbers: expected the smaller count first, got [%d, %d]", o.Numbers[0], o.Numbers[1])
	}
	if o.Target[1] < o.Target[0] {
		problem("option target: expected the smaller bound first, got [%d, %d]", o.Target[0], o.Target[1])
	}
	if o.Operations == "" || strings.Trim(o.Operations, "+-*/") != "" {
		problem("option operations: expected some of + - * /, got %q", o.Operations)
	}
	return errors.Join(problems...)
}

func init() {
	envs.Register(envs.Spec{
		Tag: "Countdown", Type: "countdown", Doc: "make a target out of three or four numbers, one answer",
		MaxActions: 1, MaxReplyWords: 100,
		NewOptions: func() any {
			return &options{Numbers: [2]int{3, 4}, MaxNumber: 99, Target: [2]int{10, 99}, Operations: "+-",
				UseAll: true, Score: 1, FormatScore: 0.1}
		},
		New: func(o any) (envs.Env, error) { return newGame(o.(*options)) },
	})
}
