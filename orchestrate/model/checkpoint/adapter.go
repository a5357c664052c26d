package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gyre/orchestrate/model/checkpoint/hf"
	"gyre/orchestrate/model/checkpoint/peft"
	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

// BaseOf is the directory of the base model that the adapter in dir lies beside; "" where dir holds no adapter.
func BaseOf(dir string) (string, error) {
	path := filepath.Join(dir, peft.ConfigName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err == nil {
		err = VerifySettings(dir)
	}
	if err != nil {
		return "", err
	}
	var of struct {
		Base string `json:"base_model_name_or_path"`
	}
	if err := json.Unmarshal(data, &of); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if of.Base == "" {
		return "", fmt.Errorf("%s: base_model_name_or_path is missing: nothing says which model the adapter is of",
			path)
	}
	return of.Base, nil
}

// Fingerprint tells models apart: a SHA-256 of config.json, of an adapter's adapter_config.json and, so that it is soon
// there, of the names, sizes, first and last MiB of the files of weights in dir.
func Fingerprint(dir string) (string, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, f := range files {
		name := f.Name()
		if !slices.Contains([]string{"config.json", peft.ConfigName}, name) &&
			!slices.Contains([]string{".safetensors", ".bin", ".gguf"}, filepath.Ext(name)) {
			continue
		}
		if err := addEnds(h, filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

func addEnds(h io.Writer, path string) error {
	const end = 1 << 20
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	fmt.Fprintf(h, "%s %d\n", filepath.Base(path), info.Size())
	for _, at := range []int64{0, max(info.Size()-end, 0)} {
		if _, err := io.Copy(h, io.NewSectionReader(f, at, end)); err != nil {
			return err
		}
	}
	return nil
}

// ReadAdapter says what the adapter in dir is like, of a base model with this config.json.
func ReadAdapter(dir string, base Config) (torch.LoRA, error) {
	a, err := peft.Open(dir, base)
	if err != nil {
		return torch.LoRA{}, err
	}
	defer a.Close()
	rank, scale, targets, err := a.Uniform(base)
	if err != nil {
		return torch.LoRA{}, fmt.Errorf("%s: %w", dir, err)
	}
	return torch.LoRA{Rank: int32(rank), Targets: torch.TargetsOf(targets), Scale: scale}, nil
}

// NewAdapter makes an adapter beside a base, on the processes of a run: with the weights in dir, or where dir is "" a
// new one that follows from the seed and changes nothing yet. A is drawn as PEFT does (Kaiming's uniform distribution
// with a = √5, that is up to 1/√in), B is zero; of the embedding A is zero and B drawn from the normal distribution.
func NewAdapter(base *torch.Model, lora torch.LoRA, head torch.Head, ranks Ranks, dir string,
	seed uint64) (m *torch.Model, err error) {
	if ranks.Shards == nil {
		m, err = torch.NewAdapter(base, lora, head)
	} else {
		m, err = torch.NewShardedAdapter(base, lora, head, ranks.Group, *ranks.Shards)
	}
	if err != nil {
		return nil, err
	}
	if dir == "" {
		err = initAdapter(m, seed)
	} else {
		err = loadAdapter(m, dir)
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// initAdapter fills a new adapter; each tensor has a generator of its own, keyed by seed and name.
func initAdapter(m *torch.Model, seed uint64) error {
	return fillAdapter(m, func(name string, shape []int64) (*weights.Tensor, error) {
		rng := rand.New(rand.NewChaCha8(sha256.Sum256(fmt.Appendf(nil, "adapter/%d/%s", seed, name))))
		draw := rng.NormFloat64
		switch {
		case strings.HasSuffix(name, ".lora_A.weight"):
			bound := 1 / math.Sqrt(float64(shape[1]))
			draw = func() float64 { return bound * (2*rng.Float64() - 1) }
		case !strings.HasSuffix(name, ".lora_embedding_B"):
			return nil, nil // zero
		}
		return &weights.Tensor{Name: name, DType: weights.F32, Shape: shape, Load: func(buffer []byte) ([]byte, error) {
			buffer = buffer[:0]
			for range shape[0] * shape[1] {
				buffer = binary.LittleEndian.AppendUint32(buffer, math.Float32bits(float32(draw())))
			}
			return buffer, nil
		}}, nil
	})
}

// loadAdapter fills an adapter with the weights in dir. A value head that is not among them starts from zero.
func loadAdapter(m *torch.Model, dir string) error {
	if err := VerifyModel(dir); err != nil {
		return err
	}
	a, err := peft.Open(dir, Config{ModelConfig: m.Config})
	if err != nil {
		return err
	}
	defer a.Close()
	return fillAdapter(m, func(name string, _ []int64) (*weights.Tensor, error) {
		t := a.Tensors[name]
		if t == nil && !strings.HasPrefix(name, "score.") {
			return nil, fmt.Errorf("%s: it has no %s: the adapter has other targets than lora.targets says", dir, name)
		}
		return t, nil
	})
}

// fillAdapter fills an adapter's parameters; those that have no tensor stay as they are.
func fillAdapter(m *torch.Model, tensor func(name string, shape []int64) (*weights.Tensor, error)) error {
	parameters, err := m.Parameters()
	if err != nil {
		return err
	}
	defer torch.CloseParameters(parameters)
	var entries []hf.Entry
	for _, p := range parameters {
		t, err := tensor(p.Name, p.Shape)
		if err != nil {
			return err
		}
		entries = append(entries, hf.Entry{Parameter: hf.Parameter{Name: p.Name, Shape: p.Shape}, Tensor: t})
	}
	return fill(m, entries)
}

// SaveAdapter writes an adapter into the existing directory dir in PEFT's layout, in float32, and beside it the base's
// config.json and the files of its tokenizer, from c.Base. Of a model over ranks all call it, those that write nothing
// with an empty dir.
func SaveAdapter(ctx context.Context, m *torch.Model, dir string, c peft.Config) error {
	parameters, err := m.Parameters()
	if err != nil {
		return err
	}
	defer torch.CloseParameters(parameters)
	g := gatherer{ctx: ctx, group: m.Group()}
	g.addAll(parameters, "", weights.F32, m.Shard)
	c.Experts = Config{ModelConfig: m.Config}.ExpertsModule()
	if err := g.write(dir != "", func() error { return peft.Save(dir, c, g.list) }); err != nil || dir == "" {
		return err
	}
	settings, err := os.ReadFile(filepath.Join(c.Base, "config.json"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), settings, 0o644)
	}
	if err != nil {
		return err
	}
	return hf.CopyCompanions(dir, c.Base)
}
