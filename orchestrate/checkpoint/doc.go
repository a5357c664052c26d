// Package checkpoint moves models between disk and memory, and makes checkpoints that survive a crash.
//
//	config.go     config.json                       -> torch.ModelConfig
//	load.go       any Hugging Face directory        -> torch.Model
//	save.go       torch.Model, optimizer moments    -> Hugging Face directory, safetensors
//	manifest.go   what a finished checkpoint holds: sizes and digests of its files, and the run's state
//	pending.go    Begin … Commit: a checkpoint appears whole or not at all
//	series.go     the checkpoints of a run: the newest intact one, pruning
//
// The file formats live in sub-packages, which know nothing of libtorch: hf (model directories), safetensors,
// torchfile and pickle (torch.save), gguf, convert, policyinit, pull, inspect. All of them treat files as hostile
// until parsed.
package checkpoint
