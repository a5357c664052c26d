// Package plot makes the figures of runs and studies from what they logged.
//
//	metrics.jsonl ──▶ rundir.Run ──┬──▶ training.png                      curves over the steps
//	                               ├──▶ gradient_analysis_*_step_N.*      one analysed step: bars, reward std, JSON, CSV
//	                               └──▶ gradient_analysis_steps.png       first, middle and last analysed step
//	metrics.json × 3 ─────────────────▶ ExportedSteps                     the same comparison from exported steps
//
// The file names, and what each one shows, are those of RAGEN's plotting scripts (docs/guide_gradient_analysis of that
// project). A gradient that was not computed is named in the caption and never drawn as zero. Package figure draws.
package plot
