package serve

import (
	"encoding/json"
	"net/http"
)

// Events writes server-sent events. The first failure ends them.
type Events struct {
	W       http.ResponseWriter
	Started bool
	Err     error
}

// Send writes one event; kind is its name, or "".
func (e *Events) Send(kind string, value any) {
	data, err := json.Marshal(value)
	if err != nil || e.Err != nil {
		e.Err = err
		return
	}
	e.Text(kind, string(data))
}

// Text writes one that is no JSON.
func (e *Events) Text(kind, data string) {
	if !e.Started {
		e.Started = true
		e.W.Header().Set("Content-Type", "text/event-stream")
		e.W.Header().Set("Cache-Control", "no-store")
		e.W.WriteHeader(http.StatusOK)
	}
	if kind != "" {
		kind = "event: " + kind + "\n"
	}
	if _, e.Err = e.W.Write([]byte(kind + "data: " + data + "\n\n")); e.Err == nil {
		e.Err = http.NewResponseController(e.W).Flush()
	}
}
