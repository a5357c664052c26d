// Package checkpoint moves models between disk and memory, and makes checkpoints that survive a crash.
//
//	model.go      any Hugging Face directory -> torch.Model
//	trainable.go  what of a model is trained: all of its weights <-> Hugging Face directory
//	adapter.go    … or an adapter beside it <-> a directory in PEFT's layout
//	optimizer.go  optimizer moments <-> safetensors
//	manifest.go   what a finished checkpoint holds: sizes and digests of its files, and the run's state
//	series.go     the checkpoints of a run: Begin … Commit (whole or not at all), find and verify, the newest, pruning
//
// What lies on disk is the concern of sub-packages, which know nothing of libtorch: weights (files of tensors), hf
// (model directories), convert (other formats into them, and what a file holds), policyinit (new policies), pull
// (downloads).
package checkpoint

import (
	"fmt"
	"runtime/debug"

	"gyre/orchestrate/model/checkpoint/hf"
	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

// Config is a model directory's config.json, and the model it describes.
type Config = hf.Config

// ReadConfig reads dir/config.json in either spelling. The settings of a checkpoint's actor are verified first: a
// changed byte may be one that no reader of the directory minds, or one that makes it complain of something else.
func ReadConfig(dir string) (Config, error) {
	if err := VerifySettings(dir); err != nil {
		return Config{}, err
	}
	return hf.ReadConfig(dir)
}

// inMemory is a float type of files as libgyre numbers it: the two lists begin alike.
func inMemory(d weights.DType) torch.DType { return torch.DType(d) }

// Load reads a Hugging Face directory onto a device: safetensors or torch.save files, sharded or not, in any float
// type. A value head (the critic's) is score.weight and score.bias; from a language model it starts from zero, which
// notes say, as they say of a head that is not tied after all. Tensors that are missing, too many or misshapen are
// listed in one error with their files; the actor of a checkpoint is verified first. All processes of a run call it.
func Load(dir string, head torch.Head, on torch.Placement, ranks Ranks) (m *torch.Model, notes []string, err error) {
	found, err := open(dir, head)
	if err != nil {
		return nil, nil, err
	}
	defer found.Weights.Close()
	return loadFound(found, dir, on, ranks)
}

// loadFound makes a model of what was found.
func loadFound(found *hf.Model, dir string, on torch.Placement, ranks Ranks) (m *torch.Model, notes []string, err error) {
	found.Config.Placement = on
	if err = found.Config.Settle(on.Longest); err == nil {
		m, err = ranks.model(found.Config.ModelConfig)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", dir, err)
	}
	if err := fill(m, found.Entries); err != nil {
		m.Close()
		return nil, nil, err
	}
	return m, found.Notes, nil
}

// LoadModel is Load in one process.
func LoadModel(dir string, head torch.Head, on torch.Placement) (*torch.Model, error) {
	m, _, err := Load(dir, head, on, Ranks{})
	return m, err
}

// open finds the tensors of a directory. The caller closes Weights.
func open(dir string, head torch.Head) (*hf.Model, error) {
	if err := VerifyModel(dir); err != nil {
		return nil, err
	}
	return hf.Open(dir, &head)
}

// Check is Load without the weights: it reads what files say of their tensors and finds everything that Load would
// refuse.
func Check(dir string, head torch.Head) error {
	found, err := open(dir, head)
	if err != nil {
		return err
	}
	return found.Weights.Close()
}

// fill copies tensors into the model's parameters, one at a time through one buffer.
func fill(m *torch.Model, entries []hf.Entry) error {
	parameters, err := m.Parameters()
	if err != nil {
		return err
	}
	defer torch.CloseParameters(parameters)
	byName := make(map[string]hf.Entry, len(entries))
	for _, e := range entries {
		byName[e.Name] = e
	}
	// The buffer grows to the largest tensor, the embedding, and nothing would collect it while libgyre does the work.
	defer debug.FreeOSMemory()
	var buffer []byte
	for i, p := range parameters {
		e, ok := byName[p.Name]
		if !ok {
			return fmt.Errorf("checkpoint: the model has a parameter %s that no config.json implies", p.Name)
		}
		delete(byName, p.Name)
		if e.Tensor == nil { // zero, as the model was made
			continue
		}
		held := func() (torch.Shard, error) { return m.Shard(i) }
		if err := place(e.Tensor, &buffer, held); err != nil {
			return err
		}
		if !m.Config.Placement.Frozen || m.Sharded() || i+1 == len(parameters) {
			continue
		}
		if err := m.Freeze(i + 1); err != nil {
			return err
		}
		if i == 0 { // no later tensor is as large as the embedding
			buffer = nil
			debug.FreeOSMemory()
		}
	}
	for name := range byName {
		return fmt.Errorf("checkpoint: the model has no parameter %s", name)
	}
	if m.Config.Placement.Frozen {
		return m.Freeze(len(parameters))
	}
	return m.Touch()
}
