// Package convert makes Hugging Face directories from other checkpoints: from GGUF files, with tokenizer, chat
// template and generation settings, and from Hugging Face directories of any file layout, as another type. Tensors
// stream from file to file one at a time. It also says what a directory or a file holds without loading it.
package convert
