// Package arithmetic computes what policies write: + - * / ** and parentheses, read by a parser and never by an
// interpreter of some language.
package arithmetic

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// maxExpression bounds what is read: brackets nest no deeper than they are long.
const maxExpression = 1000

// Grammar is what an expression may hold beside whole numbers, + - * /, signs and parentheses.
type Grammar struct {
	Decimals bool // 2.5
	Powers   bool // 2 ** 10 and 2 ^ 10, from the right
}

// spellings of operators that policies write.
var spellings = strings.NewReplacer("×", "*", "·", "*", "÷", "/", "−", "-", "–", "-")

// Evaluate computes an expression.
func (g Grammar) Evaluate(text string) (float64, error) {
	if len(text) > maxExpression {
		return 0, fmt.Errorf("an expression of %d characters: expected at most %d", len(text), maxExpression)
	}
	r := reader{grammar: g, rest: spellings.Replace(text)}
	if g.Powers {
		r.rest = strings.ReplaceAll(r.rest, "**", "^")
	}
	value, err := r.sum()
	if err != nil {
		return 0, err
	}
	if r.skip(); r.rest != "" {
		return 0, fmt.Errorf("%q is left over", r.rest)
	}
	return value, nil
}

// reader reads an expression from the left by recursive descent.
type reader struct {
	grammar Grammar
	rest    string
}

func (r *reader) skip() { r.rest = strings.TrimLeft(r.rest, " \t\r\n") }

// take reads one of the characters of set, or returns 0.
func (r *reader) take(set string) byte {
	r.skip()
	if r.rest == "" || strings.IndexByte(set, r.rest[0]) < 0 {
		return 0
	}
	c := r.rest[0]
	r.rest = r.rest[1:]
	return c
}

func (r *reader) sum() (float64, error)     { return r.chain("+-", r.product) }
func (r *reader) product() (float64, error) { return r.chain("*/", r.factor) }

// chain reads operands with operators between them and computes them from the left.
func (r *reader) chain(operators string, operand func() (float64, error)) (float64, error) {
	value, err := operand()
	for err == nil {
		operator := r.take(operators)
		if operator == 0 {
			break
		}
		var next float64
		if next, err = operand(); err == nil {
			value, err = Apply(operator, value, next)
		}
	}
	return value, err
}

func (r *reader) factor() (float64, error) {
	switch sign := r.take("+-("); sign {
	case '+', '-':
		value, err := r.factor()
		if sign == '-' {
			value = -value
		}
		return value, err
	case '(':
		value, err := r.sum()
		if err == nil && r.take(")") == 0 {
			err = errors.New("a parenthesis is not closed")
		}
		if err != nil {
			return 0, err
		}
		return r.power(value)
	}
	set := "0123456789"
	if r.grammar.Decimals {
		set += "."
	}
	digits := len(r.rest) - len(strings.TrimLeft(r.rest, set))
	if digits == 0 {
		return 0, fmt.Errorf("expected a number before %q", r.rest)
	}
	value, err := strconv.ParseFloat(r.rest[:digits], 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no number", r.rest[:digits])
	}
	r.rest = r.rest[digits:]
	return r.power(value)
}

// power reads the exponent that may follow a base.
func (r *reader) power(base float64) (float64, error) {
	if !r.grammar.Powers || r.take("^") == 0 {
		return base, nil
	}
	exponent, err := r.factor()
	return math.Pow(base, exponent), err
}

var errDivision = errors.New("a division by zero")

// Apply joins two values with one of + - * /.
func Apply(operator byte, a, b float64) (float64, error) {
	switch operator {
	case '+':
		return a + b, nil
	case '-':
		return a - b, nil
	case '*':
		return a * b, nil
	}
	if b == 0 {
		return 0, errDivision
	}
	return a / b, nil
}
