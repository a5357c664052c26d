package openai

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"gyre/orchestrate/serve/talk"

	"github.com/cockroachdb/datadriven"
)

// TestRequests reads the bodies of testdata/requests.
func TestRequests(t *testing.T) {
	datadriven.RunTest(t, "testdata/requests", func(t *testing.T, d *datadriven.TestData) string {
		out, err := understood(d)
		if err != nil {
			return "refused: " + err.Error()
		}
		return out
	})
}

// understood is what is read of a body.
func understood(d *datadriven.TestData) (string, error) {
	r := httptest.NewRequest("POST", "/v1", strings.NewReader(d.Input))
	var q chatRequest
	switch d.Cmd {
	case "completion":
		var c completionRequest
		err := keys.Decode(r, &c)
		return fmt.Sprintf("texts %q, ids %v", c.Prompt.texts, c.Prompt.ids), err
	case "response":
		var response responseRequest
		if err := keys.Decode(r, &response); err != nil {
			return "", err
		}
		q.Messages, q.Tools = messages(response.Input), response.Tools
	default:
		if err := keys.Decode(r, &q); err != nil {
			return "", err
		}
	}
	list, err := talk.Check(q.Messages)
	if err != nil {
		return "", err
	}
	offered, err := offer(&q)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, m := range list {
		text, err := json.Marshal(m)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "%s\n", text)
	}
	for _, tool := range offered.Tools {
		line := fmt.Sprintf("tool %s %q %s", tool.Name, tool.Description, tool.Parameters)
		out.WriteString(strings.TrimSpace(line) + "\n")
	}
	if len(q.Stop) > 0 {
		fmt.Fprintf(&out, "stop %q\n", []string(q.Stop))
	}
	return out.String(), nil
}
