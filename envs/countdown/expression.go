package countdown

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// maxExpression bounds what is read: brackets nest no deeper than they are long.
const maxExpression = 1000

// spellings of operators that policies write.
var spellings = strings.NewReplacer("×", "*", "·", "*", "÷", "/", "−", "-", "–", "-")

// evaluate computes an expression of whole numbers, + - * /, signs and parentheses.
func evaluate(text string) (float64, error) {
	if len(text) > maxExpression {
		return 0, fmt.Errorf("an expression of %d characters: expected at most %d", len(text), maxExpression)
	}
	r := reader{rest: spellings.Replace(text)}
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
type reader struct{ rest string }

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

func (r *reader) sum() (float64, error) {
	value, err := r.product()
	for err == nil {
		operator := r.take("+-")
		if operator == 0 {
			break
		}
		var next float64
		if next, err = r.product(); err == nil {
			value, err = apply(operator, value, next)
		}
	}
	return value, err
}

func (r *reader) product() (float64, error) {
	value, err := r.factor()
	for err == nil {
		operator := r.take("*/")
		if operator == 0 {
			break
		}
		var next float64
		if next, err = r.factor(); err == nil {
			value, err = apply(operator, value, next)
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
		return value, err
	}
	digits := len(r.rest) - len(strings.TrimLeft(r.rest, "0123456789"))
	if digits == 0 {
		return 0, fmt.Errorf("expected a number before %q", r.rest)
	}
	value, err := strconv.ParseFloat(r.rest[:digits], 64)
	r.rest = r.rest[digits:]
	return value, err
}

var errDivision = errors.New("a division by zero")

func apply(operator byte, a, b float64) (float64, error) {
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

var wholeNumber = regexp.MustCompile(`\d+`)

// usesNumbers says whether the whole numbers of a text are exactly the given ones, or some of them unless all are wanted.
func usesNumbers(text string, numbers []int, all bool) bool {
	left := map[int]int{}
	for _, n := range numbers {
		left[n]++
	}
	used := wholeNumber.FindAllString(text, len(numbers)+1)
	for _, digits := range used {
		n, err := strconv.Atoi(digits)
		if err != nil || left[n] == 0 {
			return false
		}
		left[n]--
	}
	return len(used) > 0 && (!all || len(used) == len(numbers))
}
