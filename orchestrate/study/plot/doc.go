// Package plot draws what a run logged, as PNG files at print quality.
//
//	metrics.jsonl ──▶ Run ──┬──▶ training.png                      curves over the steps
//	                        ├──▶ gradient_analysis_*_step_N.*      one analysed step: bars, spreads, JSON, CSV
//	                        └──▶ gradient_analysis_steps.png       first, middle and last analysed step
//	metrics.json × 3 ──────────▶ DrawSteps                         the same comparison from exported steps
//
// The file names, and what each one shows, are those of RAGEN's plotting scripts (docs/guide_gradient_analysis of that
// project), so that readers find what they know. A component of the gradient that was not computed is said to be so and
// is never drawn as zero.
//
// Everything is drawn with gonum's plot package: this package composes its plotters, arranges panels in a grid and adds
// titles and legends outside the data. Colours are those of Okabe and Ito (2008), which stay apart for readers with any
// common colour blindness. Files appear under their names only when they are complete.
package plot
