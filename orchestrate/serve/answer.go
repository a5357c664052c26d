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
	return &Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Param: param,
		Message: fmt.Sprintf(format, args...)}
}

// Answer writes a value as JSON.
func Answer(w http.ResponseWriter, status int, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		Fail(w, http.StatusInternalServerError, "the answer has no JSON: "+err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // a client that is gone needs no answer
}

// Fail answers with an error.
func Fail(w http.ResponseWriter, status int, message string) {
	kind := "invalid_request_error"
	switch {
	case status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case status >= http.StatusInternalServerError:
		kind = "server_error"
	}
	FailWith(w, Error{Status: status, Type: kind, Message: message})
}

// FailWith answers with an error of any kind.
func FailWith(w http.ResponseWriter, e Error) {
	Answer(w, e.Status, map[string]Error{"error": e})
}

// FailAs answers with what an error of this package, of package host or of the engine means to a client.
func FailAs(w http.ResponseWriter, err error) {
	e := ErrorOf(err)
	if e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	FailWith(w, *e)
}

// ErrorOf is err as a client gets it.
func ErrorOf(err error) *Error {
	var own *Error
	var unknown *host.UnknownModelError
	var prompt *host.PromptError
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &unknown):
		return &Error{Status: http.StatusNotFound, Type: "invalid_request_error", Param: "model",
			Code: "model_not_found", Message: err.Error()}
	case errors.As(err, &prompt):
		return &Error{Status: http.StatusBadRequest, Type: "invalid_request_error",
			Code: "context_length_exceeded", Message: err.Error()}
	case errors.As(err, &large):
		return &Error{Status: http.StatusRequestEntityTooLarge, Type: "invalid_request_error",
			Message: tooLarge(large.Limit)}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &Error{Status: http.StatusRequestTimeout, Type: "invalid_request_error",
			Message: "the request did not arrive in time"}
	case errors.Is(err, host.ErrBusy):
		return &Error{Status: http.StatusTooManyRequests, Type: "rate_limit_error", Message: err.Error()}
	case errors.Is(err, host.ErrClosed):
		return &Error{Status: http.StatusServiceUnavailable, Type: "server_error", Message: err.Error()}
	case errors.Is(err, torch.ErrInvalidArgument):
		return Bad("", "%v", err)
	}
	return &Error{Status: http.StatusInternalServerError, Type: "server_error", Message: err.Error()}
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
