// Package host serves one model to many: it opens a model directory, checkpoint or run with its tokenizer, its chat
// template and its adapters, and samples for everybody who asks in one continuous batch.
//
//	h, err := host.Open(ctx, host.Options{Dir: "runs/demo"})
//	stream, err := h.Generate(ctx, host.Request{Prompt: ids, Sampling: host.Sampling()})
//	for piece := range stream.Pieces() { … }
//	output, err := stream.Wait()
//
// One goroutine, the loop, owns the engine, its driver and every call that changes a model (torch runs all of C++ on
// one locked thread beneath it). Generate and Do hand it work between two steps of the engine; they may be called by
// any goroutine. A reply is kept for its reader without bound other than its number of tokens, so a slow reader holds
// up nobody. The end of a request's context aborts the request, and frees the keys and values that it held, with the
// next step.
package host
