package answer

import "gyre/internal/answer/algebra"

// EqualLenient says whether two answers are the same, and how that is known: "same_text", "same_number",
// "same_list", … What package algebra cannot read is equal only to itself.
func EqualLenient(a, b string) (how string, equal bool) {
	a, b = algebra.Trim(a), algebra.Trim(b)
	switch {
	case a == "" || b == "":
		return "", false
	case a == b || equalStrict(a, b):
		return "same_text", true
	}
	return algebra.Equal(a, b)
}

// equalStrict says whether two answers are equal under the MATH benchmark's rules, applied to both.
func equalStrict(a, b string) bool {
	x, _, errA := Normalize(a)
	y, _, errB := Normalize(b)
	if errA != nil || errB != nil {
		return a == b
	}
	return x == y
}
