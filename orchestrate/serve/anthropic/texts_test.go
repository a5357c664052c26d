package anthropic

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"gyre/orchestrate/model/checkpoint/policyinit"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/host"
)

// TestRequests reads the bodies of testdata/requests.
func TestRequests(t *testing.T) {
	tokenizer, err := policyinit.BytesOnly()
	if err != nil {
		t.Fatal(err)
	}
	if err := tokenizer.SetTemplate(`{{ enable_thinking }}`); err != nil {
		t.Fatal(err)
	}
	datadriven.RunTest(t, "testdata/requests", func(t *testing.T, d *datadriven.TestData) string {
		r := httptest.NewRequest("POST", "/v1/messages", strings.NewReader(d.Input))
		r.Header.Set("anthropic-version", "2023-06-01")
		q, err := decode(r)
		if err != nil {
			return "refused: " + err.Error()
		}
		ask, err := q.ask(tokenizer)
		if err != nil {
			return "refused: " + err.Error()
		}
		var out strings.Builder
		for _, m := range ask.Messages {
			text, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "%s\n", text)
		}
		for _, tool := range ask.Offer.Tools {
			fmt.Fprintf(&out, "tool %s %q %s\n", tool.Name, tool.Description, tool.Parameters)
		}
		for name, value := range ask.Offer.Variables {
			fmt.Fprintf(&out, "variable %s %s\n", name, value)
		}
		if len(ask.Stop) > 0 || ask.OneCall {
			fmt.Fprintf(&out, "stop %q, one call %v\n", []string(ask.Stop), ask.OneCall)
		}
		return out.String()
	})
}

func TestErrorTypes(t *testing.T) {
	for want, err := range map[string]error{
		"400 invalid_request_error": serve.Bad("", "x"),
		"409 conflict_error":        serve.Refuse(http.StatusConflict, "x"),
		"429 rate_limit_error":      serve.Refuse(http.StatusTooManyRequests, "x"),
		"529 overloaded_error":      fmt.Errorf("x: %w", host.ErrBusy),
		"408 timeout_error":         os.ErrDeadlineExceeded,
		"500 api_error":             errors.New("x"),
	} {
		status, body := errorOf(err, "req-1")
		if got := fmt.Sprint(status, " ", body.(object)["error"].(object)["type"]); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
	if status, _ := errorOf(host.ErrClosed, ""); status != statusOverloaded {
		t.Errorf("closing: %d", status)
	}
}
