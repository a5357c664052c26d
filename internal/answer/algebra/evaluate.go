package algebra

import (
	"hash/fnv"
	"math"
	"math/big"
	"math/cmplx"
	"math/rand/v2"
	"slices"
)

// samples is how many points expressions with variables are compared at.
const samples = 16

// value is what is known of an expression. Only a scalar has values.
type value struct {
	scalar bool
	exact  *big.Rat            // nil: it is no rational number, or too large a one
	at     [samples]complex128 // NaN where it has no value
	free   bool                // it has variables
}

// call is a function of its arguments, with its values.
func call(name string, args ...*node) *node {
	n := &node{kind: function, name: name, args: args}
	n.scalar = allScalar(args)
	exact := make([]*big.Rat, len(args))
	for i, a := range args {
		exact[i] = a.exact
		n.free = n.free || a.free
	}
	compute := operations[name]
	if compute.exact != nil && !slices.Contains(exact, nil) {
		if x := compute.exact(exact); x != nil && bits(x) <= maxBits {
			n.exact = x
		}
	}
	at := make([]complex128, len(args))
	for k := range n.at {
		for i, a := range args {
			at[i] = a.at[k]
		}
		if n.at[k] = cmplx.NaN(); n.scalar && compute.value != nil {
			n.at[k] = compute.value(at)
		}
	}
	return n
}

func times(a, b *node) *node {
	if a.kind == number && b.kind == number {
		return rational(new(big.Rat).Mul(a.exact, b.exact))
	}
	return call("*", a, b)
}

func rational(x *big.Rat) *node {
	n := &node{kind: number, value: value{scalar: true, exact: x}}
	float, _ := x.Float64()
	for k := range n.at {
		n.at[k] = complex(float, 0)
	}
	return n
}

func whole(n int64) *node { return rational(big.NewRat(n, 1)) }

func literal(text string) *node {
	x, ok := new(big.Rat).SetString(text)
	require(ok && len(text) <= 200)
	return rational(x)
}

// constants that are not variables.
var constants = map[string]complex128{`\pi`: math.Pi, "e": math.E, "i": 1i}

// named is a constant or a variable, whose values follow from its name and have both signs.
func named(name string) *node {
	n := &node{kind: symbol, name: name, value: value{scalar: true}}
	constant, is := constants[name]
	n.free = !is
	hash := fnv.New64a()
	hash.Write([]byte(name))
	rng := rand.New(rand.NewPCG(20, hash.Sum64()))
	for k := range n.at {
		x := 0.3 + 2.4*rng.Float64()
		if k%3 == 1 || k%3 == 2 && rng.IntN(2) == 0 {
			x = -x
		}
		if n.at[k] = complex(x, 0); is {
			n.at[k] = constant
		}
	}
	return n
}

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
	value = list[0].exact
	return value, used, value != nil
}
