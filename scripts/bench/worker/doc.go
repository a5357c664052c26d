// Package worker runs the programs that are compared, each in a process of its own, and speaks with them in lines of JSON.
//
//	worker ─▶ {"hello": {"program", "versions", "notes"}}            or {"unavailable": "why"}, and it ends
//	bench  ─▶ {"op": "generate", "prompts": [[…]], "new": 64, …}     a work.Task
//	worker ─▶ {"figures": {"seconds", "tokens", …}}                  or {"error": "why"}: the next task may follow
//
// A worker reads tasks until its standard input ends. It times itself, so that neither encoding nor the pipe counts. Peak memory and
// processor time are read from outside, where the system allows it, so that all programs are measured alike.
package worker
