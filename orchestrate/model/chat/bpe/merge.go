package bpe

import (
	"cmp"
	"container/heap"
)

// rule says that a pair of neighbouring tokens merges into id; lower ranks merge first.
type rule struct{ rank, id int32 }

func pairKey(a, b int32) uint64 { return uint64(uint32(a))<<32 | uint64(uint32(b)) }

// symbol is a token of a word under way, in a doubly linked list over a slice; gone symbols have id -1.
type symbol struct{ id, prev, next int32 }

// candidate is a merge that was possible when it was pushed: stale ones are recognised when popped.
type candidate struct{ rank, left, id int32 }

// candidates are a heap, of which the first to merge is at the top.
type candidates []candidate

func (h candidates) Len() int      { return len(h) }
func (h candidates) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h candidates) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].rank, h[j].rank), cmp.Compare(h[i].left, h[j].left)) < 0
}
func (h *candidates) Push(c any) { *h = append(*h, c.(candidate)) }
func (h *candidates) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// encoder holds what one call of EncodeSegments reuses from word to word.
type encoder struct {
	model   *model
	symbols []symbol
	heap    candidates
}

// merge turns a word's bytes into tokens, applies the rules in order of rank, then of position, until none applies, and
// appends the result to out: O(n log n) for n bytes.
func (m *encoder) merge(word string, out []int32) []int32 {
	rules := m.model.rules
	m.symbols, m.heap = m.symbols[:0], m.heap[:0]
	for i := range len(word) {
		if id, ok := m.model.raw[word[i:i+1]]; ok {
			n := int32(len(m.symbols))
			m.symbols = append(m.symbols, symbol{id, n - 1, n + 1})
		}
	}
	last := len(m.symbols) - 1
	for i := range last {
		m.offer(rules, int32(i))
	}
	if last >= 0 {
		m.symbols[last].next = -1
	}
	for len(m.heap) > 0 {
		top := heap.Pop(&m.heap).(candidate)
		left := &m.symbols[top.left]
		if left.id < 0 || left.next < 0 {
			continue
		}
		right := &m.symbols[left.next]
		if r, ok := rules[pairKey(left.id, right.id)]; !ok || r.id != top.id {
			continue
		}
		left.id, left.next, right.id = top.id, right.next, -1
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
			out = append(out, s.id)
		}
	}
	return out
}

// offer pushes the merge of symbol left with its successor, if there is one.
func (m *encoder) offer(rules map[uint64]rule, left int32) {
	s := m.symbols[left]
	if r, ok := rules[pairKey(s.id, m.symbols[s.next].id)]; ok {
		heap.Push(&m.heap, candidate{r.rank, left, r.id})
	}
}
