package algebra

import (
	"math/big"
	"slices"
	"testing"
)

func TestArithmetic(t *testing.T) {
	for text, want := range map[string]struct {
		value string
		used  []int64
	}{
		"(25 - 4) * 6":         {"126", []int64{25, 4, 6}},
		"7/2 - 1/2":            {"3", []int64{7, 2, 1, 2}},
		`\frac{6}{4} \times 2`: {"3", []int64{6, 4, 2}},
		"3 × 4 ÷ 2":            {"6", []int64{3, 4, 2}},
		"-(2 + 3)":             {"-5", []int64{2, 3}},
		"0 * 5":                {"0", []int64{0, 5}},
	} {
		value, used, ok := Arithmetic(text)
		exact, _ := new(big.Rat).SetString(want.value)
		if !ok || value.Cmp(exact) != 0 || !slices.Equal(used, want.used) {
			t.Errorf("%s: %v of %v (%v), expected %s of %v", text, value, used, ok, want.value, want.used)
		}
	}
	// What a player of Countdown might try: no arithmetic of whole numbers, or none at all.
	for _, text := range []string{"", "2 ^ 3", "4!", "|3|", "x + 1", `\sqrt{4}`, "1.5 + 1", "1, 2", "2 +", "(3",
		"5 / 0", "99999999999999999999 + 1", "1 = 1"} {
		if value, used, ok := Arithmetic(text); ok {
			t.Errorf("%q is %v of %v", text, value, used)
		}
	}
}
