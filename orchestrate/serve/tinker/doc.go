// Package tinker answers the client of Thinking Machines' Tinker (`tinker` on Python's registry, 0.38) under /api/v1:
// a client's own training loop sends data and a loss, asks for optimizer steps and samples, and what computes is here.
//
//	api, err := tinker.New(h, tinker.Options{Dir: "gyre-serve"})
//	api.Mount(server)
//
// A session is a client, and frees what it held when it ends or falls silent. A model is an adapter beside the host's
// base, or with rank 0 a full copy, with its gradients and its optimizer. One goroutine owns it and runs its requests
// in the order of their numbers, whatever the order in which they arrive. A sampler is an immutable copy of a model's
// weights, or the base. Every such request answers at once with the name of a future, whose result is fetched later.
// The name follows from the request's number, so a repeated request finds the future of the first.
//
// Losses are sums over tokens at temperature 1. Log-probs of samples are those of the whole distribution divided by
// the temperature, which for temperature 1 are the bits that forward gives for the same weights.
//
// What clients save lies in Options.Dir, as RUN/KIND/NAME, in the layout of a run's checkpoint. Names are letters,
// digits, dots, hyphens and underscores, so that none leads elsewhere.
package tinker
