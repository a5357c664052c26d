// Package spans tells OpenTelemetry what a program does: training steps and their phases, rollouts, episodes, their
// turns and their tool calls, under the names of the GenAI semantic conventions where these have one.
//
//	gyre.step ─┬─ gyre.play ── invoke_agent TAG ─┬─ chat policy
//	           │                                 └─ execute_tool NAME
//	           └─ gyre.phase NAME
//
// Without OTEL_EXPORTER_OTLP_ENDPOINT nothing is recorded: spans are OpenTelemetry's no-ops. What policies,
// environments and tools say is never part of a span.
package spans
