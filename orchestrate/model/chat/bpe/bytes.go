package bpe

// A byte-level vocabulary spells each byte as one printable character (GPT-2, Radford et al. 2019): printable Latin-1
// characters stand for themselves, the other 68 bytes for U+0100 and up, in order.
var (
	byteToRune [256]rune
	runeToByte = map[rune]byte{}
)

func init() {
	next := rune(0x100)
	for b := range 256 {
		r := rune(b)
		printable := '!' <= r && r <= '~' || 0xa1 <= r && r <= 0xac || 0xae <= r && r <= 0xff
		if !printable {
			r = next
			next++
		}
		byteToRune[b] = r
		runeToByte[r] = byte(b)
	}
}

// unspell returns the bytes that a token of such a vocabulary spells; ok is false when token has a character that
// stands for no byte.
func unspell(token string) (raw string, ok bool) {
	out := make([]byte, 0, len(token))
	for _, r := range token {
		b, known := runeToByte[r]
		if !known {
			return "", false
		}
		out = append(out, b)
	}
	return string(out), true
}
