// Package page is the chat page of `gyre serve`: one file without anything from the network, which talks to the
// server's own API. It shows tokens with their log-probs, and takes the settings of sampling. Whatever a model or a
// user says is set as text, never as markup.
package page

import (
	_ "embed"
	"net/http"

	"gyre/orchestrate/serve"
)

//go:embed chat.html
var chat []byte

// policy forbids the page everything but its own script and style, and requests to its own server.
const policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Mount mounts the page at the root of a server.
func Mount(s *serve.Server) {
	s.Handle("GET /{$}", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("Referrer-Policy", "no-referrer")
		_, _ = w.Write(chat) // a client that is gone needs no page
	}))
}
