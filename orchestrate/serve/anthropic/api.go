package anthropic

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/host"
	"gyre/orchestrate/serve/talk"
)

// API is Anthropic's.
type API struct{ talks *talk.Talks }

// Mount mounts the API on a server. sessions may be nil.
func Mount(s *serve.Server, sessions talk.Sessions) *API {
	a := &API{talk.New(s, sessions, "toolu")}
	s.WriteErrors(serve.ErrorForm{For: asks, Write: errorOf})
	s.Handle("POST /v1/messages", http.HandlerFunc(a.Messages))
	s.Handle("POST /v1/messages/count_tokens", serve.Endpoint(a.CountTokens))
	return a
}

const versionHeader = "Anthropic-Version"

// versions of the API. The newer one has no parameters for sampling, but who trains needs them: they count in both.
var versions = []string{"2023-06-01", "2026-10-21"}

// asks tells whether a request is one of Anthropic's clients.
func asks(r *http.Request) bool {
	return r.Header.Get(versionHeader) != "" || strings.HasSuffix(r.URL.Path, "/messages") ||
		strings.HasSuffix(r.URL.Path, "/messages/count_tokens")
}

// checkVersion sees that a request says which version of the API it is written for.
func checkVersion(r *http.Request) error {
	given, known := r.Header.Get(versionHeader), strings.Join(versions, " or ")
	switch {
	case slices.Contains(versions, given):
		return nil
	case given == "":
		return serve.Bad("", "the header anthropic-version is missing: send anthropic-version: %s", known)
	}
	return serve.Bad("", "the header anthropic-version is %.40q, expected %s", given, known)
}

// statusOverloaded is Anthropic's own.
const statusOverloaded = 529

var errorTypes = map[int]string{http.StatusUnauthorized: "authentication_error",
	http.StatusForbidden: "permission_error", http.StatusNotFound: "not_found_error",
	http.StatusRequestTimeout: "timeout_error", http.StatusConflict: "conflict_error",
	http.StatusRequestEntityTooLarge: "request_too_large", http.StatusTooManyRequests: "rate_limit_error",
	statusOverloaded: "overloaded_error"}

// errorOf is an error as Anthropic's clients get it.
func errorOf(err error, request string) (status int, body any) {
	e := serve.ErrorOf(err)
	status = e.Status
	if errors.Is(err, host.ErrBusy) || status == http.StatusServiceUnavailable {
		status = statusOverloaded
	}
	kind := errorTypes[status]
	switch {
	case kind != "":
	case status >= http.StatusInternalServerError:
		kind = "api_error"
	default:
		kind = "invalid_request_error"
	}
	said := object{"type": kind, "message": e.Message}
	if e.Code != nil {
		said["details"] = object{"error_code": e.Code}
	}
	return status, object{"type": "error", "error": said, "request_id": request}
}

type object = map[string]any
