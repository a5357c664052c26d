package serve

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"regexp"

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
	Status  int     `json:"-"`
	Code    *string `json:"code"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
	Type    string  `json:"type"`
}

func (e *Error) Error() string { return e.Message }

// Bad is an error of status 400 in what a request says of param; "" where it is of no one parameter.
func Bad(param, format string, args ...any) *Error {
	e := Refuse(http.StatusBadRequest, format, args...)
	if param != "" {
		e.Param = &param
	}
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
	if a, ok := w.(*answer); ok && a.form != nil {
		status, body := a.form.Write(err, w.Header().Get(RequestID))
		Answer(w, status, body)
		return
	}
	Answer(w, e.Status, map[string]*Error{"error": e})
}

// RequestID is the header of an answer that names its request, as the log does.
const RequestID = "X-Request-Id"

// ErrorForm is how an API writes errors, also those of the server itself, where they are for its clients.
type ErrorForm struct {
	For   func(r *http.Request) bool
	Write func(err error, request string) (status int, body any)
}

// WriteErrors adds a form beside OpenAI's, before Run.
func (s *Server) WriteErrors(f ErrorForm) { s.errors = append(s.errors, f) }

// ErrorOf is err as a client gets it.
func ErrorOf(err error) *Error {
	var own *Error
	var unknown *host.UnknownModelError
	var prompt *host.PromptError
	var large *http.MaxBytesError
	var code, param *string
	status := http.StatusInternalServerError
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &unknown):
		status, code, param = http.StatusNotFound, new("model_not_found"), new("model")
	case errors.As(err, &prompt):
		if status = http.StatusBadRequest; prompt.TooLong {
			code = new("context_length_exceeded")
		}
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
	e := Refuse(status, "%s", Told(err))
	e.Code, e.Param = code, param
	return e
}

// engineNames are how the engine calls itself and a request of its own: they tell a client nothing.
var engineNames = regexp.MustCompile(`torch: |\brequest \d+: `)

// Told is the text of an error as a client gets it.
func Told(err error) string { return engineNames.ReplaceAllString(err.Error(), "") }

// TopK is how many tokens are drawn from; 0: all of them, which requests also write as -1.
func TopK(asked int) (int, error) {
	if asked < -1 {
		return 0, Bad("top_k", "top_k is %d, expected -1 or 0 (all tokens), or how many", asked)
	}
	return max(asked, 0), nil
}

func tooLarge(limit int64) string {
	return fmt.Sprintf("the request is larger than %d bytes, which is the server's limit", limit)
}

// inJSON is what values of a type are in JSON.
func inJSON(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return inJSON(t.Elem())
	case reflect.Bool:
		return "a boolean"
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a number"
}

// Decode reads the JSON object of a request's body into v, and refuses what is none.
func Decode(r *http.Request, v any) error { return decode(r.Body, v) }

func decode(from io.Reader, v any) error {
	var kind *json.UnmarshalTypeError
	var large *http.MaxBytesError
	var own *Error
	decoder := json.NewDecoder(from)
	err := decoder.Decode(v)
	if err == nil {
		if _, err = decoder.Token(); errors.Is(err, io.EOF) { // which also ends the body's deadline
			return nil
		}
		if !errors.As(err, &large) {
			err = errors.New("more follows the object")
		}
	}
	switch {
	case errors.As(err, &large) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &own):
		return err
	case errors.As(err, &kind):
		return Bad(kind.Field, "%s is a JSON %s, expected %s", cmp.Or(kind.Field, "the body"), kind.Value,
			inJSON(kind.Type))
	}
	return Bad("", "the body is no JSON object of the form that is expected: %v", err)
}
