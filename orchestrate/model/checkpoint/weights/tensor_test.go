package weights

import (
	"math"
	"testing"

	"github.com/x448/float16"
)

func halfToFloat(h uint16) float32 { return float16.Frombits(h).Float32() }
func floatToHalf(f float32) uint16 { return float16.Fromfloat32(f).Bits() }

func TestElements(t *testing.T) {
	for _, c := range []struct {
		shape []int64
		want  int64 // -1: an error
	}{
		{nil, 1}, {[]int64{3, 4}, 12}, {[]int64{0, 1 << 39}, 0}, {[]int64{1 << 32, 1 << 32}, -1}, {[]int64{-1}, -1},
		{[]int64{1 << 41}, -1},
	} {
		got, err := elements(c.shape)
		if (err != nil) != (c.want < 0) || err == nil && got != c.want {
			t.Errorf("elements(%v) = %d, %v; want %d", c.shape, got, err, c.want)
		}
	}
}

func TestHalfRoundTripsAndRounds(t *testing.T) {
	for h := range 1 << 16 { // every half is a float and comes back
		f := halfToFloat(uint16(h))
		if f != f {
			continue
		}
		if got := floatToHalf(f); got != uint16(h) {
			t.Fatalf("half %#04x -> %v -> %#04x", h, f, got)
		}
	}
	// Between two neighbouring halves the nearest wins, and the even one on a tie.
	for h := uint16(0); h < 0x7bff; h++ {
		low, high := halfToFloat(h), halfToFloat(h+1)
		middle := (low + high) / 2
		even := h + h&1
		if got := floatToHalf(middle); got != even {
			t.Fatalf("tie %v between %#04x and its successor rounds to %#04x", middle, h, got)
		}
		if got := floatToHalf(math.Nextafter32(middle, 1e9)); got != h+1 {
			t.Fatalf("above the tie of %#04x: %#04x", h, got)
		}
	}
	for f, want := range map[float32]uint16{65519: 0x7bff, 65520: 0x7c00, 1e30: 0x7c00, -1e30: 0xfc00, 1e-9: 0} {
		if got := floatToHalf(f); got != want {
			t.Errorf("floatToHalf(%v) = %#04x, want %#04x", f, got, want)
		}
	}
}

func TestBFloatRounding(t *testing.T) {
	for bits, want := range map[uint32]uint16{
		0x3f800000: 0x3f80, 0x3f808000: 0x3f80, 0x3f818000: 0x3f82, 0x3f808001: 0x3f81, 0x7f7fffff: 0x7f80,
		0x7f800001: 0x7fc0, 0xff800000: 0xff80,
	} {
		if got := floatToBFloat(math.Float32frombits(bits)); got != want {
			t.Errorf("%#08x -> %#04x, want %#04x", bits, got, want)
		}
	}
}
