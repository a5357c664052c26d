package algebra

import (
	"math"
	"math/big"
	"math/cmplx"
	"math/rand/v2"
	"slices"
)

// maxBits bounds the numbers of exact arithmetic.
const maxBits = 1 << 11

// exact evaluates an expression of rational numbers, roots that come out even included; false when it is none, or
// too large.
func (n *node) exact() (*big.Rat, bool) {
	switch n.kind {
	case number:
		return n.value, true
	case sum, product:
		total := new(big.Rat)
		if n.kind == product {
			total.SetInt64(1)
		}
		for _, a := range n.args {
			x, ok := a.exact()
			if !ok {
				return nil, false
			}
			if n.kind == sum {
				total.Add(total, x)
			} else {
				total.Mul(total, x)
			}
		}
		return total, bits(total) < maxBits
	case power:
		base, ok := n.args[0].exact()
		exponent, also := n.args[1].exact()
		if !ok || !also {
			return nil, false
		}
		if !exponent.IsInt() {
			if base.Sign() < 0 || !exponent.Denom().IsInt64() {
				return nil, false
			}
			if base, ok = root(base, exponent.Denom().Int64()); !ok {
				return nil, false
			}
		}
		return integerPower(base, exponent.Num())
	case function:
		return n.exactCall()
	}
	return nil, false
}

func (n *node) exactCall() (*big.Rat, bool) {
	args := make([]*big.Rat, len(n.args))
	for i, a := range n.args {
		x, ok := a.exact()
		if !ok {
			return nil, false
		}
		args[i] = x
	}
	switch n.name {
	case "frac":
		if args[1].Sign() == 0 {
			return nil, false
		}
		return new(big.Rat).Quo(args[0], args[1]), true
	case "root":
		if !args[1].IsInt() || !args[1].Num().IsInt64() {
			return nil, false
		}
		return root(args[0], args[1].Num().Int64())
	case "abs":
		return new(big.Rat).Abs(args[0]), true
	case "floor", "ceil":
		quotient, rest := new(big.Int).DivMod(args[0].Num(), args[0].Denom(), new(big.Int))
		if n.name == "ceil" && rest.Sign() != 0 {
			quotient.Add(quotient, big.NewInt(1))
		}
		return new(big.Rat).SetInt(quotient), true
	case "factorial", "binom":
		for _, x := range args {
			if !x.IsInt() || x.Sign() < 0 || !x.Num().IsInt64() || x.Num().Int64() > 200 {
				return nil, false
			}
		}
		value := new(big.Int)
		if n.name == "binom" {
			value.Binomial(args[0].Num().Int64(), args[1].Num().Int64())
		} else {
			value.MulRange(1, args[0].Num().Int64())
		}
		return new(big.Rat).SetInt(value), true
	}
	return nil, false
}

func bits(x *big.Rat) int { return max(x.Num().BitLen(), x.Denom().BitLen()) }

func integerPower(base *big.Rat, exponent *big.Int) (*big.Rat, bool) {
	if !exponent.IsInt64() || exponent.Int64() > maxBits || exponent.Int64() < -maxBits {
		return nil, false
	}
	e := exponent.Int64()
	size := new(big.Int).Abs(exponent)
	if int64(bits(base))*size.Int64() > maxBits || base.Sign() == 0 && e <= 0 {
		return nil, false
	}
	num, den := new(big.Int).Exp(base.Num(), size, nil), new(big.Int).Exp(base.Denom(), size, nil)
	if e < 0 {
		num, den = den, num
	}
	return new(big.Rat).SetFrac(num, den), true
}

// root is the real n-th root of a rational number, when it is rational.
func root(x *big.Rat, n int64) (*big.Rat, bool) {
	if n < 1 || n > 64 || x.Sign() < 0 && n%2 == 0 {
		return nil, false
	}
	num, ok := integerRoot(new(big.Int).Abs(x.Num()), n)
	den, also := integerRoot(x.Denom(), n)
	if !ok || !also {
		return nil, false
	}
	if x.Sign() < 0 {
		num.Neg(num)
	}
	return new(big.Rat).SetFrac(num, den), true
}

func integerRoot(x *big.Int, n int64) (*big.Int, bool) {
	if n == 1 {
		return new(big.Int).Set(x), true
	}
	if n == 2 {
		r := new(big.Int).Sqrt(x)
		return r, new(big.Int).Mul(r, r).Cmp(x) == 0
	}
	low, high := new(big.Int), new(big.Int).Lsh(big.NewInt(1), uint(x.BitLen())/uint(n)+1)
	power, exponent := new(big.Int), big.NewInt(n)
	for low.Cmp(high) <= 0 {
		middle := new(big.Int).Add(low, high)
		middle.Rsh(middle, 1)
		switch power.Exp(middle, exponent, nil).Cmp(x) {
		case 0:
			return middle, true
		case -1:
			low.Add(middle, big.NewInt(1))
		default:
			high.Sub(middle, big.NewInt(1))
		}
	}
	return nil, false
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
	arg := func(i int) complex128 { return n.args[i].at(point) }
	switch n.kind {
	case number:
		x, _ := n.value.Float64()
		return complex(x, 0)
	case symbol:
		if c, is := constants[n.name]; is {
			return c
		}
		return point[n.name]
	case sum:
		total := complex128(0)
		for i := range n.args {
			total += arg(i)
		}
		return total
	case product:
		total := complex128(1)
		for i := range n.args {
			total *= arg(i)
		}
		return total
	case power:
		return powerOf(arg(0), arg(1))
	case function:
		return n.callAt(arg)
	}
	return cmplx.NaN()
}

func powerOf(base, exponent complex128) complex128 {
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

var analytic = map[string]func(complex128) complex128{
	"sin": cmplx.Sin, "cos": cmplx.Cos, "tan": cmplx.Tan, "cot": cmplx.Cot, "asin": cmplx.Asin, "acos": cmplx.Acos,
	"atan": cmplx.Atan,
	"sinh": cmplx.Sinh, "cosh": cmplx.Cosh, "tanh": cmplx.Tanh, "ln": cmplx.Log, "exp": cmplx.Exp,
	"sec": func(x complex128) complex128 { return 1 / cmplx.Cos(x) },
	"csc": func(x complex128) complex128 { return 1 / cmplx.Sin(x) },
	"abs": func(x complex128) complex128 { return complex(cmplx.Abs(x), 0) },
	// Not ln and not the decimal one: which of them is meant is not known, so that both sides must say log.
	"log":   func(x complex128) complex128 { return cmplx.Log(x) * 0.7310585786300049 },
	"floor": func(x complex128) complex128 { return complex(math.Floor(real(x)), 0) },
	"ceil":  func(x complex128) complex128 { return complex(math.Ceil(real(x)), 0) },
}

func (n *node) callAt(arg func(int) complex128) complex128 {
	switch n.name {
	case "frac":
		return arg(0) / arg(1)
	case "root":
		x, k := arg(0), arg(1)
		if imag(x) == 0 && real(x) < 0 && imag(k) == 0 && math.Mod(real(k), 2) == 1 {
			return complex(-math.Pow(-real(x), 1/real(k)), 0)
		}
		if k == 2 {
			return cmplx.Sqrt(x)
		}
		return cmplx.Pow(x, 1/k)
	}
	if f, known := analytic[n.name]; known {
		return f(arg(0))
	}
	return cmplx.NaN()
}

const samples = 16

// points are where expressions with variables are compared: always the same ones, of both signs.
func points(expressions ...*node) []map[string]complex128 {
	set := map[string]bool{}
	for _, e := range expressions {
		e.symbols(set)
	}
	if len(set) == 0 {
		return []map[string]complex128{{}}
	}
	rng := rand.New(rand.NewPCG(20, 26))
	variables := make([]string, 0, len(set))
	for v := range set {
		variables = append(variables, v)
	}
	slices.Sort(variables)
	list := make([]map[string]complex128, samples)
	for k := range list {
		list[k] = map[string]complex128{}
		for _, v := range variables {
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
	list, err := read(Trim(s), false)
	if err != nil || len(list) != 1 {
		return nil, nil, false
	}
	tokens, err := lex(Trim(s), false)
	if err != nil {
		return nil, nil, false
	}
	for _, t := range tokens {
		switch t.kind {
		case tokenNumber:
			n, is := new(big.Int).SetString(t.text, 10)
			if !is || !n.IsInt64() {
				return nil, nil, false
			}
			used = append(used, n.Int64())
		case tokenMark:
			if t.text == "^" || t.text == "!" || t.text == "|" || t.text == "_" {
				return nil, nil, false
			}
		case tokenCommand:
			if t.text != "times" && t.text != "cdot" && t.text != "div" && t.text != "frac" {
				return nil, nil, false
			}
		default:
			return nil, nil, false
		}
	}
	value, ok = list[0].exact()
	return value, used, ok
}
