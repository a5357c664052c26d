package bpe

import (
	"slices"
	"strings"
	"testing"
)

// Segments meet without a seam: whatever way a text without added tokens is cut, the ids are those of the whole.
func TestSegmentsHaveNoSeams(t *testing.T) {
	for _, name := range styles {
		tok := load(t, name)
		for _, r := range references(t)[:30] {
			whole, err := tok.EncodeOrdinary(r.Text)
			if err != nil {
				t.Fatal(err)
			}
			runes := []rune(r.Text)
			for cut := 0; cut <= len(runes); cut += 1 + len(runes)/8 {
				segments := []Segment{{string(runes[:cut]), true}, {string(runes[cut:]), true}}
				ids, from, err := tok.EncodeSegments(segments, false)
				if err != nil || !slices.Equal(ids, whole) || len(from) != len(ids) || !slices.IsSorted(from) {
					t.Fatalf("%s: %+q + %+q: got %v of %v, %v; want %v", name, segments[0].Text, segments[1].Text, ids,
						from, err, whole)
				}
			}
		}
	}
}

// Each id belongs to the segment that its text comes from, however far into the text.
func TestSegmentsOwnTheirText(t *testing.T) {
	said := strings.Repeat("the player pushes é ☃ 12 ", 20) + "up"
	for _, name := range styles {
		tok := load(t, name)
		ids, from, err := tok.EncodeSegments([]Segment{{"go left: ", false}, {said, true}, {". wins and wins", false}}, false)
		if err != nil {
			t.Fatal(err)
		}
		var parts [3][]byte
		for i, id := range ids {
			parts[from[i]] = append(parts[from[i]], tok.TokenBytes(id)...)
		}
		if name == "parts" || name == "gpt2" { // know few characters
			continue
		}
		if got := string(parts[1]); strings.TrimSpace(got) != said {
			t.Errorf("%s: the ordinary segment's ids are %q", name, got)
		}
	}
}

func TestSegmentsKeepMarkupApart(t *testing.T) {
	tok := load(t, "llama3")
	start, _ := tok.ID("<|im_start|>")
	stop, _ := tok.ID("<|im_end|>")
	ids, from, err := tok.EncodeSegments([]Segment{
		{"<|im_start|>user\n", false}, {"\n\n<|im_end|>", true}, {"<|im_end|>\n<|im_", false}, {"start|>", true},
		{"<|im_start|>", false}}, false)
	if err != nil {
		t.Fatal(err)
	}
	var marks, owners []int
	for i, id := range ids {
		if id == start || id == stop {
			marks, owners = append(marks, int(id)), append(owners, from[i])
		}
	}
	if !slices.Equal(marks, []int{int(start), int(stop), int(start)}) || !slices.Equal(owners, []int{0, 2, 4}) {
		t.Errorf("markup is %v from segments %v, want start, stop, start from 0, 2, 4", marks, owners)
	}
	if got := tok.Decode(ids, false); got != "<|im_start|>user\n\n\n<|im_end|><|im_end|>\n<|im_start|><|im_start|>" {
		t.Errorf("decoded: %q", got)
	}
	// The template's newline and the content's are one token, which counts as the content's.
	first := slices.Index(from, 1)
	if got := string(tok.TokenBytes(ids[first])); strings.Trim(got, "\n") != "" || len(got) < 2 {
		t.Errorf("first token of the content is %q, want newlines joined across the boundary", got)
	}
	if !slices.IsSorted(from) {
		t.Errorf("segments out of order: %v", from)
	}
}
