package cli

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracing "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A collector of OpenTelemetry gets steps with their phases, and rollouts with their episodes, turns and tool calls;
// what is trained stays the same.
func TestSpansOfARun(t *testing.T) {
	var mu sync.Mutex // guards spans
	spans := map[string]*tracing.Span{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			unpacked, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			body = unpacked
		}
		text, err := io.ReadAll(body)
		var request collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(text, &request)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL, err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, of := range request.ResourceSpans {
			for _, scope := range of.ScopeSpans {
				for _, span := range scope.Spans {
					spans[string(span.SpanId)] = span
				}
			}
		}
	}))
	defer server.Close()
	dir := t.TempDir()
	args := []string{"train", tinyConfig(t, dir, ""), "run.steps=2", "analysis.enabled=false"}
	cmd := gyre(t, dir, append(args, "run.name=told")...)
	cmd.Env = append(cmd.Env, "OTEL_EXPORTER_OTLP_ENDPOINT="+server.URL)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	mu.Lock()
	defer mu.Unlock()
	count := map[string]int{}
	for _, span := range spans {
		parent := "nothing"
		if of := spans[string(span.ParentSpanId)]; of != nil {
			parent = of.Name
			if span.StartTimeUnixNano < of.StartTimeUnixNano || span.EndTimeUnixNano > of.EndTimeUnixNano {
				t.Errorf("%s lies outside %s", span.Name, parent)
			}
		}
		count[parent+" > "+span.Name]++
	}
	if count["nothing > gyre.step"] != 2 || count["gyre.step > gyre.play train"] != 2 ||
		count["gyre.play train > invoke_agent sokoban"] != 16 || count["gyre.step > gyre.phase update_actor"] != 2 ||
		count["invoke_agent sokoban > chat policy"] < 16 {
		t.Errorf("spans %v", count)
	}
	for _, span := range spans {
		if span.Name != "chat policy" {
			continue
		}
		about := map[string]int64{}
		for _, a := range span.Attributes {
			about[a.Key] = a.Value.GetIntValue()
		}
		if about["gen_ai.usage.input_tokens"] < 10 || about["gen_ai.usage.output_tokens"] < 1 ||
			about["gen_ai.usage.output_tokens"] > 8 {
			t.Fatalf("a turn says %v", span.Attributes)
		}
	}
	mustIn(t, dir, append(args, "run.name=untold")...)
	weights := func(name string) string {
		return string(readFile(t, filepath.Join(dir, "runs", name, "global_step_2/actor/model.safetensors")))
	}
	if weights("told") != weights("untold") {
		t.Error("other weights")
	}
}
