// Package checkpoint moves models between disk and memory, and makes checkpoints that survive a crash.
//
//	model.go      any Hugging Face directory        -> torch.Model
//	save.go       torch.Model, optimizer moments    -> Hugging Face directory, safetensors
//	manifest.go   what a finished checkpoint holds: sizes and digests of its files, and the run's state
//	series.go     the checkpoints of a run: Begin … Commit (whole or not at all), find and verify, the newest, pruning
//
// What lies on disk is the concern of sub-packages, which know nothing of libtorch: weights (files of tensors), hf (model directories),
// convert (other formats into them, and what a file holds), policyinit (new policies), pull (downloads).
package checkpoint
