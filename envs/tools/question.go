package tools

import (
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"

	"gyre/envs"
	"gyre/internal/dataset"
)

// question is a question and its answer.
type question struct{ text, gold, expression string }

// readQuestions reads a file with questions and answers, under any of the names that data sets give these columns.
func readQuestions(path string) ([]question, error) {
	return envs.ReadRows("problems", path, nil, "", func(c dataset.Columns) (question, error) {
		row, err := c.Row(dataset.Fields{})
		switch {
		case err == nil && strings.TrimSpace(row.Question) == "":
			err = errors.New("there is no question")
		case err == nil && row.Gold == "":
			err = errors.New("the question has no answer")
		}
		return question{text: row.Question, gold: row.Gold}, err
	})
}

// newQuestion asks for the value of a chain of whole numbers. Products come before sums.
func newQuestion(rng *rand.Rand, terms [2]int, most int) question {
	var text strings.Builder
	total, product := new(big.Int), new(big.Int)
	for i := range terms[0] + rng.IntN(terms[1]-terms[0]+1) {
		n := int64(1 + rng.IntN(most))
		value := big.NewInt(n)
		operator := " * "
		if i == 0 || rng.IntN(3) > 0 {
			total.Add(total, product)
			product, operator = value, " + "
			if rng.IntN(2) == 0 && i > 0 {
				product, operator = value.Neg(value), " - "
			}
		} else {
			product.Mul(product, value)
		}
		if i > 0 {
			text.WriteString(operator)
		}
		fmt.Fprint(&text, n)
	}
	return question{"What is " + text.String() + "?", total.Add(total, product).String(), text.String()}
}
