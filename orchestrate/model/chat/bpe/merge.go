package bpe

// rule says that a pair of neighbouring tokens merges into id; lower ranks merge first.
type rule struct{ rank, id int32 }

func pairKey(a, b int32) uint64 { return uint64(uint32(a))<<32 | uint64(uint32(b)) }

// symbol is a token of a word under way, in a doubly linked list over a slice; gone symbols have id -1.
type symbol struct{ id, prev, next int32 }

// candidate is a merge that was possible when it was pushed: stale ones are recognised when popped.
type candidate struct{ rank, left, id int32 }

func (c candidate) before(o candidate) bool {
	return c.rank < o.rank || c.rank == o.rank && c.left < o.left
}

// merger is the scratch space of one encoding.
type merger struct {
	symbols []symbol
	heap    []candidate
}

// merge applies rules to the tokens in order of rank, then of position, until none applies, and appends the result to
// out: O(n log n) for n tokens.
func (m *merger) merge(tokens []int32, rules map[uint64]rule, out []int32) []int32 {
	m.symbols, m.heap = m.symbols[:0], m.heap[:0]
	for i, id := range tokens {
		m.symbols = append(m.symbols, symbol{id, int32(i) - 1, int32(i) + 1})
	}
	if len(tokens) > 0 {
		m.symbols[len(tokens)-1].next = -1
	}
	for i := range len(tokens) - 1 {
		m.offer(rules, int32(i))
	}
	for len(m.heap) > 0 {
		top := m.pop()
		left := &m.symbols[top.left]
		if left.id < 0 || left.next < 0 {
			continue
		}
		right := &m.symbols[left.next]
		if r, ok := rules[pairKey(left.id, right.id)]; !ok || r.id != top.id {
			continue
		}
		left.id = top.id
		left.next = right.next
		right.id = -1
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
func (m *merger) offer(rules map[uint64]rule, left int32) {
	s := m.symbols[left]
	if r, ok := rules[pairKey(s.id, m.symbols[s.next].id)]; ok {
		m.push(candidate{r.rank, left, r.id})
	}
}

func (m *merger) push(c candidate) {
	h := append(m.heap, c)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !c.before(h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = c
	m.heap = h
}

func (m *merger) pop() candidate {
	h := m.heap
	top, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	for i := 0; len(h) > 0; {
		child := 2*i + 1
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if child >= len(h) || !h[child].before(last) {
			h[i] = last
			break
		}
		h[i] = h[child]
		i = child
	}
	m.heap = h
	return top
}
