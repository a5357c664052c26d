// Package generation drives an engine: it submits requests, steps until their replies are complete and hands them out,
// while they grow or when they are finished. Playing episodes, `gyre generate`, the proof that sampler = trainer and
// the benchmarks all go through it.
//
//	driver := generation.New(engine, tokenizer)
//	err := driver.Submit(generation.Request{Request: request, Grown: func(p generation.Piece) { fmt.Print(p.Text) }})
//	err = driver.Run(ctx, func(out torch.Output) error { … })
//
// The text of a growing reply is well-formed UTF-8 at any moment, holds no special token, and ends before a
// stop string of the request: what could still become part of one is held back. A driver belongs to one goroutine, as
// its engine does.
package generation
