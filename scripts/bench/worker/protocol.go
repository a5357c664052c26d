package worker

// Hello is a worker's first line.
type Hello struct {
	Program  string            `json:"program"`
	Versions map[string]string `json:"versions"`
	Notes    []string          `json:"notes,omitempty"` // settings worth knowing
}

// Figures are what a task took.
type Figures struct {
	Seconds      float64   `json:"seconds"`
	Tokens       int       `json:"tokens"`                  // as work.Task.Tokens counts them
	FirstSeconds float64   `json:"first_seconds,omitempty"` // until every sequence had its first token
	LaterTokens  int       `json:"later_tokens,omitempty"`  // sampled after that
	TurnSeconds  []float64 `json:"turn_seconds,omitempty"`  // of a rollout
	PeakBytes    int64     `json:"peak_bytes,omitempty"`    // resident, of this process since its start
	Cached       int       `json:"cached,omitempty"`        // prompt tokens that a cache held
	Output       []int32   `json:"output,omitempty"`        // of a greedy continuation

	// Parts splits the time of a task that has parts, in seconds.
	Parts map[string]float64 `json:"parts,omitempty"`
	// Bandwidth and FLOPS answer a probe of the machine.
	Bandwidth float64 `json:"bandwidth,omitempty"`
	FLOPS     float64 `json:"flops,omitempty"`
}

// Line is any line that a worker writes.
type Line struct {
	Hello       *Hello   `json:"hello,omitempty"`
	Unavailable string   `json:"unavailable,omitempty"`
	Figures     *Figures `json:"figures,omitempty"`
	Error       string   `json:"error,omitempty"`
}
