package spans

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

var tracer = otel.Tracer("gyre")

// longestFlush is how long the end of a program waits for a collector.
const longestFlush = 10 * time.Second

// Open sends spans from now on to the collector that OTEL_EXPORTER_OTLP_ENDPOINT (or …_TRACES_ENDPOINT) names, over
// OTLP/HTTP; OpenTelemetry's other variables (headers, sampler, service name) count too. close sends what is left. The
// first problem with the collector is told to log.
func Open(ctx context.Context, log io.Writer) (close func(), err error) {
	if cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")) == "" {
		return func() {}, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("OpenTelemetry: %w", err)
	}
	of, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "gyre")),
		resource.WithHost(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("OpenTelemetry: %w", err)
	}
	var once sync.Once
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		once.Do(func() { fmt.Fprintf(log, "warning: OpenTelemetry: %v\n", err) })
	}))
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(of))
	otel.SetTracerProvider(provider)
	return func() {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestFlush)
		defer cancel()
		if err := provider.Shutdown(within); err != nil {
			otel.Handle(err)
		}
	}, nil
}

// Step begins a training step, of which what is done under the returned context is a part.
func Step(ctx context.Context, step int) (context.Context, func(error)) {
	return start(ctx, "gyre.step", attribute.Int("gyre.step", step))
}

// Phase begins a phase of a step.
func Phase(ctx context.Context, name string) func(error) {
	_, end := start(ctx, "gyre.phase "+name, attribute.String("gyre.phase", name))
	return end
}

// Play begins a rollout or a validation of so many episodes.
func Play(ctx context.Context, stream string, step, episodes int) (context.Context, func(error)) {
	return start(ctx, "gyre.play "+stream, attribute.String("gyre.stream", stream), attribute.Int("gyre.step", step),
		attribute.Int("gyre.episodes", episodes))
}

// Tool begins the execution of an action; one that calls a tool has that tool's name, others their environment's.
func Tool(ctx context.Context, environment, action string) func(error) {
	name := environment
	if call, ok := strings.CutPrefix(action, "<tool_call>"); ok {
		var called struct{ Name string }
		if json.NewDecoder(strings.NewReader(call)).Decode(&called) == nil && called.Name != "" {
			name = called.Name
		}
	}
	_, end := start(ctx, "execute_tool "+name, attribute.String("gen_ai.operation.name", "execute_tool"),
		attribute.String("gen_ai.tool.name", name))
	return end
}

func start(ctx context.Context, name string, about ...attribute.KeyValue) (context.Context, func(error)) {
	ctx, span := tracer.Start(ctx, name, trace.WithAttributes(about...))
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// Episode is the span of an episode. One goroutine at a time uses it. The zero value records nothing.
type Episode struct {
	ctx        context.Context
	span, turn trace.Span
}

// Begin begins an episode.
func Begin(ctx context.Context, tag string, seed int64, group, member int) Episode {
	ctx, span := tracer.Start(ctx, "invoke_agent "+tag, trace.WithAttributes(
		attribute.String("gen_ai.operation.name", "invoke_agent"), attribute.String("gen_ai.provider.name", "gyre"),
		attribute.String("gen_ai.agent.name", tag), attribute.Int64("gyre.seed", seed),
		attribute.Int("gyre.group", group),
		attribute.Int("gyre.member", member)))
	return Episode{ctx: ctx, span: span}
}

// In is a context whose spans are parts of the episode; it ends with ctx.
func (e *Episode) In(ctx context.Context) context.Context {
	if e.span == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, e.span)
}

// Ask begins a turn: a reply is asked for.
func (e *Episode) Ask(maxTokens int, temperature float64) {
	if e.span == nil {
		return
	}
	_, e.turn = tracer.Start(e.ctx, "chat policy", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("gen_ai.operation.name", "chat"), attribute.String("gen_ai.provider.name", "gyre"),
		attribute.String("gen_ai.request.model", "policy"), attribute.Int("gen_ai.request.max_tokens", maxTokens),
		attribute.Float64("gen_ai.request.temperature", temperature)))
}

// Answered ends the turn.
func (e *Episode) Answered(prompt, cached, reply int, finish string) {
	if e.turn == nil {
		return
	}
	e.turn.SetAttributes(attribute.Int("gen_ai.usage.input_tokens", prompt),
		attribute.Int("gen_ai.usage.cache_read.input_tokens", cached), attribute.Int("gen_ai.usage.output_tokens",
			reply),
		attribute.StringSlice("gen_ai.response.finish_reasons", []string{finish}))
	e.turn.End()
	e.turn = nil
}

// End ends the episode for a reason.
func (e *Episode) End(stop string, success, failed bool, turns int) {
	if e.span == nil {
		return
	}
	e.span.SetAttributes(attribute.String("gyre.stop", stop), attribute.Bool("gyre.success", success),
		attribute.Int("gyre.turns", turns))
	if failed {
		e.span.SetStatus(codes.Error, stop)
		e.span.SetAttributes(attribute.String("error.type", stop))
	}
	e.span.End()
	e.span = nil
}
