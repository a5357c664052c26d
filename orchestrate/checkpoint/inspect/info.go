package inspect

// Info describes a checkpoint. Model and Tokenizer are nil where there is none.
type Info struct {
	Path       string     `json:"path"`
	Layout     string     `json:"layout"` // "safetensors, 2 shards", "GGUF version 3"
	Bytes      int64      `json:"bytes"`  // of the files that hold tensors
	Parameters int64      `json:"parameters"`
	DTypes     []DType    `json:"dtypes"`
	Model      *Model     `json:"model,omitempty"`
	Tokenizer  *Tokenizer `json:"tokenizer,omitempty"`
	Memory     *Memory    `json:"memory,omitempty"`
	Tensors    []Tensor   `json:"tensors,omitempty"`
	Notes      []string   `json:"notes,omitempty"`
}

// DType counts the tensors of one stored type.
type DType struct {
	Name     string `json:"name"`
	Tensors  int    `json:"tensors"`
	Elements int64  `json:"elements"`
}

// Tensor is one tensor in a file.
type Tensor struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"`
	Shape []int64 `json:"shape"`
	File  string  `json:"file"`
}

// Model is what config.json says.
type Model struct {
	Family           string  `json:"family"`
	Head             string  `json:"head"` // "language model, tied", "language model" or "value"
	HiddenSize       int64   `json:"hidden_size"`
	Layers           int64   `json:"layers"`
	Heads            int64   `json:"heads"`
	KVHeads          int64   `json:"kv_heads"`
	HeadDim          int64   `json:"head_dim"`
	IntermediateSize int64   `json:"intermediate_size"`
	VocabSize        int64   `json:"vocab_size"`
	MaxPositions     int64   `json:"max_positions"`
	RopeType         string  `json:"rope_type"`
	RopeTheta        float64 `json:"rope_theta"`
}

// Tokenizer is what the tokenizer's files give.
type Tokenizer struct {
	VocabSize    int     `json:"vocab_size"`
	StopIDs      []int32 `json:"stop_ids"`
	ChatTemplate bool    `json:"chat_template"`
}

// Memory is what weights and what grows with them take in f32 (bytes). Activations and KV cache come on top.
type Memory struct {
	Sampling int64 `json:"sampling"` // weights and their packed copies
	Training int64 `json:"training"` // and gradients and AdamW's moments
	KVToken  int64 `json:"kv_per_token"`
}
