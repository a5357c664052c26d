package answer

import "math/big"

// Arithmetic evaluates an expression of whole numbers with + - * / and brackets, and lists the numbers that it uses. ok is false
// for anything else, powers and roots included.
func Arithmetic(s string) (value *big.Rat, used []int64, ok bool) {
	list, err := read(clean(s), false)
	if err != nil || len(list) != 1 {
		return nil, nil, false
	}
	tokens, err := lex(clean(s), false)
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
