package algebra

import (
	"maps"
	"math"
	"math/big"
	"math/cmplx"
	"math/rand/v2"
	"slices"
)

// maxBits bounds the numbers of exact arithmetic.
const maxBits = 1 << 11

// operation is how a function is computed of its arguments.
type operation struct {
	exact func(x []*big.Rat) *big.Rat // nil = no rational number, or too large a one
	value func(x []complex128) complex128
}

// one is an operation of one argument without exact values.
func one(f func(complex128) complex128) operation {
	return operation{value: func(x []complex128) complex128 { return f(x[0]) }}
}

// operations are all functions that have values.
var operations = map[string]operation{
	"+": {
		func(x []*big.Rat) *big.Rat { return new(big.Rat).Add(x[0], x[1]) },
		func(x []complex128) complex128 { return x[0] + x[1] },
	},
	"*": {
		func(x []*big.Rat) *big.Rat { return new(big.Rat).Mul(x[0], x[1]) },
		func(x []complex128) complex128 { return x[0] * x[1] },
	},
	"frac": {exactQuotient, func(x []complex128) complex128 { return x[0] / x[1] }},
	"^":    {exactPower, power},
	"root": {exactRoot, root},
	"abs": {
		func(x []*big.Rat) *big.Rat { return new(big.Rat).Abs(x[0]) },
		func(x []complex128) complex128 { return complex(cmplx.Abs(x[0]), 0) },
	},
	"floor": {
		func(x []*big.Rat) *big.Rat { return floor(x[0]) },
		func(x []complex128) complex128 { return complex(math.Floor(real(x[0])), 0) },
	},
	"ceil": {
		func(x []*big.Rat) *big.Rat {
			below := floor(new(big.Rat).Neg(x[0]))
			return below.Neg(below)
		},
		func(x []complex128) complex128 { return complex(math.Ceil(real(x[0])), 0) },
	},
	"factorial": {exact: exactCount(func(n []int64) *big.Int { return new(big.Int).MulRange(1, n[0]) })},
	"binom":     {exact: exactCount(func(n []int64) *big.Int { return new(big.Int).Binomial(n[0], n[1]) })},

	"sin": one(cmplx.Sin), "cos": one(cmplx.Cos), "tan": one(cmplx.Tan), "cot": one(cmplx.Cot),
	"asin": one(cmplx.Asin), "acos": one(cmplx.Acos), "atan": one(cmplx.Atan), "sinh": one(cmplx.Sinh),
	"cosh": one(cmplx.Cosh), "tanh": one(cmplx.Tanh), "ln": one(cmplx.Log), "exp": one(cmplx.Exp),
	"sec": one(func(x complex128) complex128 { return 1 / cmplx.Cos(x) }),
	"csc": one(func(x complex128) complex128 { return 1 / cmplx.Sin(x) }),
	// Not ln and not the decimal one: which of them is meant is not known, so that both sides must say log.
	"log": one(func(x complex128) complex128 { return cmplx.Log(x) * 0.7310585786300049 }),
}

// exact evaluates an expression of rational numbers, roots that come out even included; nil when it is none, or too
// large.
func (n *node) exact() *big.Rat {
	if n.kind == number {
		return n.value
	}
	compute := operations[n.name].exact
	if n.kind != function || compute == nil {
		return nil
	}
	args := make([]*big.Rat, len(n.args))
	for i, a := range n.args {
		if args[i] = a.exact(); args[i] == nil {
			return nil
		}
	}
	if x := compute(args); x != nil && bits(x) <= maxBits {
		return x
	}
	return nil
}

func bits(x *big.Rat) int { return max(x.Num().BitLen(), x.Denom().BitLen()) }

func exactQuotient(x []*big.Rat) *big.Rat {
	if x[1].Sign() == 0 {
		return nil
	}
	return new(big.Rat).Quo(x[0], x[1])
}

func floor(x *big.Rat) *big.Rat {
	quotient, _ := new(big.Int).DivMod(x.Num(), x.Denom(), new(big.Int))
	return new(big.Rat).SetInt(quotient)
}

// exactCount is a function of small whole numbers.
func exactCount(f func(n []int64) *big.Int) func([]*big.Rat) *big.Rat {
	return func(args []*big.Rat) *big.Rat {
		n := make([]int64, len(args))
		for i, x := range args {
			if !x.IsInt() || x.Sign() < 0 || x.Cmp(big.NewRat(200, 1)) > 0 {
				return nil
			}
			n[i] = x.Num().Int64()
		}
		return new(big.Rat).SetInt(f(n))
	}
}

func exactPower(x []*big.Rat) *big.Rat {
	base, exponent := x[0], x[1]
	if !exponent.IsInt() {
		if base.Sign() < 0 {
			return nil
		}
		if base = exactRoot([]*big.Rat{base, new(big.Rat).SetInt(exponent.Denom())}); base == nil {
			return nil
		}
	}
	size := new(big.Int).Abs(exponent.Num())
	if !size.IsInt64() || size.Int64() > maxBits || int64(bits(base))*size.Int64() > maxBits ||
		base.Sign() == 0 && exponent.Sign() <= 0 {
		return nil
	}
	num, den := new(big.Int).Exp(base.Num(), size, nil), new(big.Int).Exp(base.Denom(), size, nil)
	if exponent.Sign() < 0 {
		num, den = den, num
	}
	return new(big.Rat).SetFrac(num, den)
}

// exactRoot is the real root of a rational number, when it is rational.
func exactRoot(args []*big.Rat) *big.Rat {
	x, index := args[0], args[1]
	if !index.IsInt() || !index.Num().IsInt64() {
		return nil
	}
	n := index.Num().Int64()
	if n < 1 || n > 64 || x.Sign() < 0 && n%2 == 0 {
		return nil
	}
	num, den := integerRoot(x.Num(), n), integerRoot(x.Denom(), n)
	if num == nil || den == nil {
		return nil
	}
	return new(big.Rat).SetFrac(num, den)
}

// integerRoot is the n-th root of a whole number with its sign, nil when it does not come out even.
func integerRoot(x *big.Int, n int64) *big.Int {
	size, exponent := new(big.Int).Abs(x), big.NewInt(n)
	low, high := new(big.Int), new(big.Int).Lsh(big.NewInt(1), uint(x.BitLen())/uint(n)+1)
	for low.Cmp(high) < 0 { // the smallest number whose power is not below size
		middle := new(big.Int).Add(low, high)
		middle.Rsh(middle, 1)
		if new(big.Int).Exp(middle, exponent, nil).Cmp(size) < 0 {
			low = middle.Add(middle, big.NewInt(1))
		} else {
			high = middle
		}
	}
	if new(big.Int).Exp(low, exponent, nil).Cmp(size) != 0 {
		return nil
	}
	return low.Mul(low, big.NewInt(int64(x.Sign())))
}

// constants that are not variables.
var constants = map[string]complex128{`\pi`: math.Pi, "e": math.E, "i": 1i}

// symbols adds the variables of an expression to the set.
func (n *node) symbols(into map[string]bool) {
	if _, constant := constants[n.name]; n.kind == symbol && !constant {
		into[n.name] = true
	}
	for _, a := range n.args {
		a.symbols(into)
	}
}

// at evaluates an expression; NaN where it has no value.
func (n *node) at(point map[string]complex128) complex128 {
	switch n.kind {
	case number:
		x, _ := n.value.Float64()
		return complex(x, 0)
	case symbol:
		if c, is := constants[n.name]; is {
			return c
		}
		return point[n.name]
	}
	compute := operations[n.name].value
	if n.kind != function || compute == nil {
		return cmplx.NaN()
	}
	args := make([]complex128, len(n.args))
	for i, a := range n.args {
		args[i] = a.at(point)
	}
	return compute(args)
}

func power(x []complex128) complex128 {
	base, exponent := x[0], x[1]
	if base == 0 && real(exponent) <= 0 {
		return cmplx.NaN()
	}
	if e := real(exponent); imag(exponent) == 0 && e == math.Trunc(e) && math.Abs(e) <= 64 {
		result := complex128(1)
		for range int(math.Abs(e)) {
			result *= base
		}
		if e < 0 {
			result = 1 / result
		}
		return result
	}
	return cmplx.Pow(base, exponent)
}

func root(args []complex128) complex128 {
	x, k := args[0], args[1]
	if imag(x) == 0 && real(x) < 0 && imag(k) == 0 && math.Mod(real(k), 2) == 1 {
		return complex(-math.Pow(-real(x), 1/real(k)), 0)
	}
	if k == 2 {
		return cmplx.Sqrt(x)
	}
	return cmplx.Pow(x, 1/k)
}

const samples = 16

// points are where expressions with variables are compared: always the same ones, of both signs.
func points(expressions ...*node) []map[string]complex128 {
	variables := map[string]bool{}
	for _, e := range expressions {
		e.symbols(variables)
	}
	if len(variables) == 0 {
		return []map[string]complex128{{}}
	}
	rng := rand.New(rand.NewPCG(20, 26))
	list := make([]map[string]complex128, samples)
	for k := range list {
		list[k] = map[string]complex128{}
		for _, v := range slices.Sorted(maps.Keys(variables)) {
			x := 0.3 + 2.4*rng.Float64()
			if k%3 == 1 || k%3 == 2 && rng.IntN(2) == 0 {
				x = -x
			}
			list[k][v] = complex(x, 0)
		}
	}
	return list
}

// Arithmetic evaluates an expression of whole numbers with + - * / and brackets, and lists the numbers that it
// uses. ok is false for anything else, powers and roots included.
func Arithmetic(s string) (value *big.Rat, used []int64, ok bool) {
	defer readable(&ok)
	for _, t := range lex(Trim(s), false) {
		switch t.kind {
		case tokenNumber:
			n, is := new(big.Int).SetString(t.text, 10)
			require(is && n.IsInt64())
			used = append(used, n.Int64())
		case tokenMark:
			require(t.text != "^" && t.text != "!" && t.text != "|" && t.text != "_")
		default:
			require(slices.Contains([]string{`\times`, `\cdot`, `\div`, `\frac`}, t.text) && t.kind == tokenCommand)
		}
	}
	list, ok := read(Trim(s), false)
	require(ok && len(list) == 1)
	value = list[0].exact()
	return value, used, value != nil
}
