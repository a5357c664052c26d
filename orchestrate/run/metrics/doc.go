// Package metrics writes down what happened: a run's metrics in their sinks, one line per step on the console,
// progress bars.
//
//	Sink ◀── metrics.jsonl (always: the truth), TensorBoard event files, programs that get every record (W&B, MLflow)
//
// metrics.jsonl holds one JSON object per step: "schema" (1) and "step" first, then the metrics in alphabetical order.
// A value is a number, a string, a boolean, a table ({"columns": […], "rows": [[…], …]}), or null where the number does
// not exist in that step (the cosine with a gradient of no length). JSON has no NaN and no
// infinity: they are written as the strings "NaN", "Infinity" and "-Infinity", which Read turns back into numbers.
// A line is on disk (fsync) before Log returns, so that after a crash the file ends with the last logged step, possibly
// followed by a torn line, which Open removes. The other sinks get what this file has when a run is opened, and then
// the same calls.
package metrics
