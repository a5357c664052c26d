package dataset

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"gyre/envs"
	"gyre/internal/dataset"
)

// sums are the options of the arithmetic environment, and its source.
type sums struct {
	Terms     int    `option:"terms" range:"[1,16]" doc:"numbers per problem"`
	Digits    int    `option:"digits" range:"[1,6]" doc:"digits per number, at most"`
	Operators string `option:"operators" doc:"which of + - * occur"`
	Prefix    string `option:"prefix" doc:"text before the problem"`
	Suffix    string `option:"suffix" doc:"text after the problem"`
	Problems  int    `option:"problems" range:"[1,64]" doc:"problems per prompt; the answer is all of theirs, with commas"`
	// Careless makes the demonstrations of a teacher whom practice can surpass.
	Careless float64 `option:"careless" range:"[0,1]" doc:"probability with which the expert keeps only the last digit of an answer"`
}

func (s *sums) factory(components []envs.ComponentSpec) (envs.Factory, error) {
	var problems []error
	if s.Operators == "" || strings.Trim(s.Operators, "+-*") != "" {
		problems = append(problems, fmt.Errorf("option operators: expected some of + - *, got %q", s.Operators))
	}
	if strings.Contains(s.Operators, "*") && s.Terms*s.Digits > 18 {
		problems = append(problems, errors.New("options terms and digits: products of more than 18 digits in all do "+
			"not fit"))
	}
	return func() (envs.Env, error) { return newReader(s, 1, "", components) }, errors.Join(problems...)
}

func (s *sums) row(seed int64) dataset.Row {
	rng := envs.Rand("dataset/arithmetic", seed)
	var texts, values []string
	for range s.Problems {
		text, value := s.draw(rng)
		texts, values = append(texts, text), append(values, strconv.FormatInt(value, 10))
	}
	text := strings.Join(texts, " ")
	return dataset.Row{ID: text, Name: "arithmetic/" + text, Source: "arithmetic", Question: text,
		Gold: strings.Join(values, ","), Prompt: []dataset.Message{{Role: "user", Content: s.Prefix + text + s.Suffix}}}
}

// teach is what the expert answers.
func (s *sums) teach(seed int64, gold string) string {
	if s.Careless == 0 {
		return gold
	}
	rng := envs.Rand("dataset/careless", seed)
	answers := strings.Split(gold, ",")
	for i, a := range answers {
		if rng.Float64() < s.Careless {
			answers[i] = a[len(a)-1:]
		}
	}
	return strings.Join(answers, ",")
}

// draw makes a problem; products bind tighter than sums.
func (s *sums) draw(rng *rand.Rand) (text string, value int64) {
	limit := int64(1)
	for range s.Digits {
		limit *= 10
	}
	var out strings.Builder
	product, sign := int64(1), int64(1) // of the term that is being written
	for i := range s.Terms {
		n := rng.Int64N(limit)
		if i > 0 {
			operator := s.Operators[rng.IntN(len(s.Operators))]
			out.WriteByte(operator)
			if operator != '*' {
				value += sign * product
				product, sign = 1, 1
				if operator == '-' {
					sign = -1
				}
			}
		}
		product *= n
		out.WriteString(strconv.FormatInt(n, 10))
	}
	return out.String(), value + sign*product
}

// samples are the rows that are played without a file.
func samples() []dataset.Row {
	list := make([]dataset.Row, 16)
	s := sums{Terms: 2, Digits: 2, Operators: "+-", Problems: 1}
	for i := range list {
		list[i] = s.row(int64(i))
		list[i].Index, list[i].Source, list[i].Name = i, "sample", "sample/"+list[i].ID
		list[i].Prompt[0].Content = "What is " + list[i].Question + "?" + dataset.BoxedInstruction
	}
	return list
}
