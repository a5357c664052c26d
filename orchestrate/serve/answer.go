package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"gyre/orchestrate/serve/host"
	"gyre/torch"
)

// Given is what a request gives, or else the default.
func Given[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}

// Error is an error as OpenAI's API has it.
type Error struct {
	Status  int    `json:"-"`
	Message string `json:"message"`
	Type    string `json:"type"`
	Param   string `json:"-"` // "" is null
	Code    string `json:"-"` // "" is null
}

func (e *Error) Error() string { return e.Message }

// MarshalJSON writes {"message", "type", "param", "code"}.
func (e Error) MarshalJSON() ([]byte, error) {
	null := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	return json.Marshal(map[string]any{"message": e.Message, "type": e.Type, "param": null(e.Param),
		"code": null(e.Code)})
}

// Bad is an error of status 400 in what a request says of param.
func Bad(param, format string, args ...any) *Error {
	e := Refuse(http.StatusBadRequest, format, args...)
	e.Param = param
	return e
}

// Refuse is an error of a status.
func Refuse(status int, format string, args ...any) *Error {
	e := &Error{Status: status, Type: "invalid_request_error", Message: fmt.Sprintf(format, args...)}
	switch {
	case status == http.StatusTooManyRequests:
		e.Type = "rate_limit_error"
	case status >= http.StatusInternalServerError:
		e.Type = "server_error"
	}
	return e
}

// Endpoint makes a handler of a function from a request to the JSON of its answer. in is the request's body; struct{}
// for those without one.
func Endpoint[In any](f func(r *http.Request, in In) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In
		var out any
		var err error
		if _, none := any(in).(struct{}); !none {
			err = Decode(r, &in)
		}
		if err == nil {
			out, err = f(r, in)
		}
		if err != nil {
			Fail(w, err)
			return
		}
		Answer(w, http.StatusOK, out)
	}
}

// Answer writes a value as JSON.
func Answer(w http.ResponseWriter, status int, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		Fail(w, fmt.Errorf("the answer has no JSON: %w", err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // a client that is gone needs no answer
}

// Fail answers with what an error of this package, of package host or of the engine means to a client.
func Fail(w http.ResponseWriter, err error) {
	e := ErrorOf(err)
	if e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	Answer(w, e.Status, map[string]*Error{"error": e})
}

// ErrorOf is err as a client gets it.
func ErrorOf(err error) *Error {
	var own *Error
	var unknown *host.UnknownModelError
	var prompt *host.PromptError
	var large *http.MaxBytesError
	status, code, param := http.StatusInternalServerError, "", ""
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &unknown):
		status, code, param = http.StatusNotFound, "model_not_found", "model"
	case errors.As(err, &prompt):
		status, code = http.StatusBadRequest, "context_length_exceeded"
	case errors.As(err, &large):
		return Refuse(http.StatusRequestEntityTooLarge, "%s", tooLarge(large.Limit))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Refuse(http.StatusRequestTimeout, "the request did not arrive in time")
	case errors.Is(err, host.ErrBusy):
		status = http.StatusTooManyRequests
	case errors.Is(err, host.ErrClosed):
		status = http.StatusServiceUnavailable
	case errors.Is(err, torch.ErrInvalidArgument):
		status = http.StatusBadRequest
	}
	e := Refuse(status, "%s", err)
	e.Code, e.Param = code, param
	return e
}

func tooLarge(limit int64) string {
	return fmt.Sprintf("the request is larger than %d bytes, which is the server's limit (--max-body-mib)", limit)
}

// Decode reads the JSON object of a request's body into v, and refuses what is none.
func Decode(r *http.Request, v any) error {
	decoder := json.NewDecoder(r.Body)
	err := decoder.Decode(v)
	if err == nil {
		if _, more := decoder.Token(); !errors.Is(more, io.EOF) { // which also ends the body's deadline
			err = errors.New("more follows the object")
			var large *http.MaxBytesError
			if errors.As(more, &large) {
				return more
			}
		}
	}
	var kind *json.UnmarshalTypeError
	var large *http.MaxBytesError
	var own *Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &large) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &own):
		return err
	case errors.As(err, &kind):
		return Bad(kind.Field, "%s is a JSON %s, expected %s", kind.Field, kind.Value, kind.Type)
	}
	return Bad("", "the body is no JSON object of the form that is expected: %v", err)
}
