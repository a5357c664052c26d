package bpe

import "unicode/utf8"

// rule says that a pair of neighbouring tokens merges into id; lower ranks merge first.
type rule struct{ rank, id int32 }

func pairKey(a, b int32) uint64 { return uint64(uint32(a))<<32 | uint64(uint32(b)) }

// symbol is a token of a word under way, in a doubly linked list over a slice; gone symbols have id -1.
type symbol struct {
	token
	prev, next int32
}

// candidate is a merge that was possible when it was pushed: stale ones are recognised when popped.
type candidate struct{ rank, left, id int32 }

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.left < d.left
}

// candidates are a heap, of which the first to merge is at the top. (container/heap would allocate at each push.)
type candidates []candidate

func (h *candidates) push(c candidate) {
	list := append(*h, c)
	*h = list
	for i := len(list) - 1; i > 0; {
		parent := (i - 1) / 2
		if !list[i].before(list[parent]) {
			return
		}
		list[i], list[parent] = list[parent], list[i]
		i = parent
	}
}

func (h *candidates) pop() candidate {
	list := *h
	top, last := list[0], len(list)-1
	list[0] = list[last]
	list = list[:last]
	*h = list
	for i := 0; ; {
		child := 2*i + 1
		if child+1 < last && list[child+1].before(list[child]) {
			child++
		}
		if child >= last || !list[child].before(list[i]) {
			return top
		}
		list[i], list[child] = list[child], list[i]
		i = child
	}
}

// encoder holds what one call of EncodeSegments reuses from word to word.
type encoder struct {
	model   *model
	start   []token
	symbols []symbol
	heap    candidates
}

// characters gives the tokens of a word before any merge.
func (m *model) characters(word string, out []token) []token {
	unk := token{id: -1}
	flush := func() {
		if unk.id >= 0 {
			out, unk.id = append(out, unk), -1
		}
	}
	for i := 0; i < len(word); {
		n := 1
		if !m.byteLevel {
			_, n = utf8.DecodeRuneInString(word[i:])
		}
		char := word[i : i+n]
		i += n
		if id, ok := m.raw[char]; ok {
			flush()
			out = append(out, token{id, int32(n)})
			continue
		}
		bytes := false
		if !m.byteLevel {
			out, bytes = m.fallback(char, out) // before an unknown one that is not written yet, as Hugging Face's
		}
		switch {
		case bytes || m.unk < 0:
		case m.fuse && unk.id >= 0:
			unk.width += int32(n)
		default:
			flush()
			unk = token{m.unk, int32(n)}
		}
	}
	flush()
	return out
}

// merge turns a word into tokens, applies the rules in order of rank, then of position, until none applies, and appends
// the result to out: O(n log n) for n bytes.
func (m *encoder) merge(word string, out []token) []token {
	rules := m.model.rules
	m.start = m.model.characters(word, m.start[:0])
	m.symbols, m.heap = m.symbols[:0], m.heap[:0]
	for i, t := range m.start {
		m.symbols = append(m.symbols, symbol{t, int32(i) - 1, int32(i) + 1})
	}
	last := len(m.symbols) - 1
	for i := range last {
		m.offer(rules, int32(i))
	}
	if last >= 0 {
		m.symbols[last].next = -1
	}
	for len(m.heap) > 0 {
		top := m.heap.pop()
		left := &m.symbols[top.left]
		if left.id < 0 || left.next < 0 {
			continue
		}
		right := &m.symbols[left.next]
		if r, ok := rules[pairKey(left.id, right.id)]; !ok || r.id != top.id {
			continue
		}
		left.id, left.width, left.next, right.id = top.id, left.width+right.width, right.next, -1
		if left.next >= 0 {
			m.symbols[left.next].prev = top.left
			m.offer(rules, top.left)
		}
		if left.prev >= 0 {
			m.offer(rules, left.prev)
		}
	}
	for _, s := range m.symbols {
		if s.id >= 0 {
			out = append(out, s.token)
		}
	}
	return out
}

// offer pushes the merge of symbol left with its successor, if there is one.
func (m *encoder) offer(rules map[uint64]rule, left int32) {
	s := m.symbols[left]
	if r, ok := rules[pairKey(s.id, m.symbols[s.next].id)]; ok {
		m.heap.push(candidate{r.rank, left, r.id})
	}
}
