package spans

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// Actions are named by the tool that they call, never by what they say.
func TestActionsAreNamedByTheirTool(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder)))
	defer otel.SetTracerProvider(before)
	e := Begin(t.Context(), "maths", 7, 1, 2)
	ctx := e.In(context.Background())
	for _, action := range []string{`<tool_call>{"name": "calculator", "arguments": {"secret": 1}}</tool_call>`, "secret",
		"<tool_call>secret"} {
		Tool(ctx, "maths", action)(nil)
	}
	Tool(ctx, "maths", "Up")(errors.New("secret"))
	e.Ask(8, 0.5)
	e.Answered(10, 4, 3, "stop")
	e.End("error", false, true, 1)
	e.End("error", false, true, 1) // once is enough
	var names []string
	for _, span := range recorder.Ended() {
		names = append(names, span.Name())
		for _, a := range span.Attributes() {
			if strings.Contains(a.Value.Emit(), "secret") {
				t.Errorf("%s says %v", span.Name(), a)
			}
		}
		if span.Name() != "invoke_agent maths" && span.Parent().SpanID() != recorder.Ended()[5].SpanContext().SpanID() {
			t.Errorf("%s is no part of the episode", span.Name())
		}
	}
	if got := strings.Join(names, ", "); got != "execute_tool calculator, execute_tool maths, execute_tool maths, "+
		"execute_tool maths, chat policy, invoke_agent maths" {
		t.Errorf("spans %s", got)
	}
	if recorder.Ended()[3].Status().Code != codes.Error || recorder.Ended()[5].Status().Code != codes.Error {
		t.Error("a failure is not marked")
	}
	(&Episode{}).Ask(1, 1) // records nothing
	(&Episode{}).Answered(1, 1, 1, "stop")
	(&Episode{}).End("turns", true, false, 1)
}
