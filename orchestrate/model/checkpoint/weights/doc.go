// Package weights reads files of tensors: safetensors, torch.save's archives and GGUF; and writes safetensors.
//
//	tensor.go       a tensor in a file: name, type, layout, how to get at its bytes; conversion between float types
//	safetensors.go  huggingface/safetensors: a JSON header, then the data
//	torchfile.go    torch.save's zip archives, and what their pickles may refer to
//	pickle.go       Python pickles as data: a reader of the instructions, without an interpreter behind it
//	gguf.go         llama.cpp's format, quant.go its quantised types
//
// Files are hostile until parsed: sizes are checked against the file before anything is allocated, products without overflow, ranges
// against one another, and nothing of a pickle is executed. The readers are Gyre's own because those that exist do not hold to that: a
// pickle of 13 bytes makes gopickle allocate until the process dies; 4 million nested arrays overflow gguf-parser-go's stack, which
// Go cannot recover from; libtorch's unpickler believes a storage's size over its record's, reads no OrderedDict, and holds whole files.
package weights
