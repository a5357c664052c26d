package countdown

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"

	"gyre/envs"
	"gyre/envs/arithmetic"
)

const (
	maxNumbers = 6     // more are beyond the search for a solution
	maxTries   = 10000 // draws per problem
	tolerance  = 1e-5  // between an answer's value and the target
)

// problem is a target and what to make it of.
type problem struct {
	target  int
	numbers []int
}

// generate draws numbers and joins them at random until they make a target in range.
func (o *options) generate(rng *rand.Rand) (problem, error) {
	for range maxTries {
		var numbers []int
		for range o.Numbers[0] + rng.IntN(o.Numbers[1]-o.Numbers[0]+1) {
			numbers = append(numbers, 1+rng.IntN(o.MaxNumber))
		}
		value, ok := o.combine(rng, numbers)
		if ok && value >= float64(o.Target[0]) && value <= float64(o.Target[1]) {
			return problem{int(value), numbers}, nil
		}
	}
	return problem{}, fmt.Errorf("no problem with a target from %d to %d in %d draws: widen option target or change "+
		"operations and max_number", o.Target[0], o.Target[1], maxTries)
}

// combine joins any two of the numbers until one is left; false where one on the way is not whole.
func (o *options) combine(rng *rand.Rand, numbers []int) (float64, bool) {
	values := make([]float64, len(numbers), maxNumbers)
	for i, n := range numbers {
		values[i] = float64(n)
	}
	take := func() float64 {
		i := rng.IntN(len(values))
		defer func() { values = slices.Delete(values, i, i+1) }()
		return values[i]
	}
	for len(values) > 1 {
		a, b := take(), take()
		value, err := arithmetic.Apply(o.Operations[rng.IntN(len(o.Operations))], a, b)
		if err != nil || value != math.Trunc(value) {
			return 0, false
		}
		values = append(values, value)
	}
	return values[0], true
}

// readProblems reads a file of {"target", "nums"} or of reasoning-gym's rows, whose metadata
// hold "target" and "numbers".
func readProblems(path string) ([]problem, error) {
	type fields struct {
		Target  *int
		Nums    []int
		Numbers []int
	}
	type row struct {
		fields
		Metadata fields
	}
	return envs.ReadRows("problems", path, nil, "", func(r row) (problem, error) {
		f := r.fields
		if f.Target == nil {
			f = r.Metadata
		}
		numbers := append(f.Nums, f.Numbers...)
		if f.Target == nil || len(numbers) == 0 {
			return problem{}, errors.New(`expected "target" and "nums", at the top or in "metadata"`)
		}
		if slices.Min(numbers) < 0 {
			return problem{}, fmt.Errorf("expected numbers of at least 0, got %v", numbers)
		}
		return problem{*f.Target, numbers}, nil
	})
}

// term is a value on the way to the target, made of two others or given.
type term struct {
	value       float64
	operator    byte // 0 = given
	left, right *term
}

func (t *term) String() string {
	if t.operator == 0 {
		return strconv.FormatFloat(t.value, 'f', -1, 64)
	}
	left, right := t.left.String(), t.right.String()
	product := t.operator == '*' || t.operator == '/'
	if product && t.left.sum() {
		left = "(" + left + ")"
	}
	if t.right.sum() && t.operator != '+' || t.operator == '/' && t.right.operator != 0 && !t.right.sum() {
		right = "(" + right + ")"
	}
	return left + " " + string(t.operator) + " " + right
}

func (t *term) sum() bool { return t.operator == '+' || t.operator == '-' }

// solve finds an expression for the target: it joins any two terms in every way until one is left, sums before
// products.
func (p problem) solve(all bool) (string, bool) {
	if len(p.numbers) > maxNumbers {
		return "", false
	}
	terms := make([]*term, len(p.numbers))
	for i, n := range p.numbers {
		terms[i] = &term{value: float64(n)}
	}
	if found := join(terms, float64(p.target), all); found != nil {
		return found.String(), true
	}
	return "", false
}

func join(terms []*term, target float64, all bool) *term {
	if !all || len(terms) == 1 {
		for _, t := range terms {
			if math.Abs(t.value-target) < tolerance {
				return t
			}
		}
	}
	if len(terms) == 1 {
		return nil
	}
	rest := make([]*term, len(terms)-1)
	for _, operator := range []byte("+-*/") {
		for i, a := range terms {
			for j, b := range terms {
				if i == j || i > j && (operator == '+' || operator == '*') { // a+b is b+a
					continue
				}
				value, err := arithmetic.Apply(operator, a.value, b.value)
				if err != nil {
					continue
				}
				rest = rest[:0]
				for k, t := range terms {
					if k != i && k != j {
						rest = append(rest, t)
					}
				}
				rest = append(rest, &term{value, operator, a, b})
				if found := join(rest, target, all); found != nil {
					return found
				}
			}
		}
	}
	return nil
}

var wholeNumber = regexp.MustCompile(`\d+`)

// usesNumbers says whether the whole numbers of a text are exactly the given ones, or some of them unless all are
// wanted.
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
