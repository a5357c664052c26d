package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/internal/regular"
	"gyre/orchestrate/model/checkpoint/hf"
	"gyre/orchestrate/model/checkpoint/peft"
	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

// BaseOf is the directory of the base model that the adapter in dir lies beside; "" where dir holds no adapter.
func BaseOf(dir string) (string, error) {
	if !atomicfile.Exists(dir, peft.ConfigName) {
		return "", nil
	}
	if err := VerifySettings(dir); err != nil {
		return "", err
	}
	c, err := peft.ReadConfig(dir)
	if err == nil && c.Base == "" {
		err = fmt.Errorf("%s: base_model_name_or_path is missing in %s: nothing says which model the adapter is of",
			dir, peft.ConfigName)
	}
	return c.Base, err
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
	f, size, err := regular.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Fprintf(h, "%s %d\n", filepath.Base(path), size)
	for _, at := range []int64{0, max(size-end, 0)} {
		if _, err := io.Copy(h, io.NewSectionReader(f, at, end)); err != nil {
			return err
		}
	}
	return nil
}

// Adapter is the set of A and B of a low-rank adapter beside a base model, and of a value head, which its base has not.
type Adapter struct {
	LoRA torch.LoRA
	Dir  string // of its values, in PEFT's layout; "" for a new one
	Seed uint64 // that a new one follows from
	// Saved is what adapter_config.json gets to say of it; rank, targets and experts are the model's.
	Saved peft.Config
}

// OpenAdapter reads what the adapter in dir is like, of the base model in another directory with this config.json.
func OpenAdapter(dir, baseDir string, base Config) (Adapter, error) {
	a, err := peft.Open(dir, base)
	if err != nil {
		return Adapter{}, err
	}
	defer a.Close()
	rank, scale, targets, err := a.Uniform()
	if err != nil {
		return Adapter{}, fmt.Errorf("%s: %w", dir, err)
	}
	a.Config.Base = baseDir
	return Adapter{LoRA: torch.LoRA{Rank: int32(rank), Targets: torch.TargetsOf(targets), Scale: scale}, Dir: dir,
		Saved: a.Config}, nil
}

// LoadMerged is Load of a language model with the adapter in another directory added to its weights.
func LoadMerged(dir, adapter string, on torch.Placement, ranks Ranks) (m *torch.Model, notes []string, err error) {
	if err := VerifyModel(adapter); err != nil {
		return nil, nil, err
	}
	found, err := open(dir, torch.HeadLM)
	if err != nil {
		return nil, nil, err
	}
	defer found.Weights.Close()
	a, err := peft.Open(adapter, found.Config)
	if err != nil {
		return nil, nil, err
	}
	defer a.Close()
	if err := a.Merge(found); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", adapter, err)
	}
	return loadFound(found, dir, on, ranks)
}

// Count implements Trainable.
func (a Adapter) Count(shape torch.ModelConfig) int64 {
	n := peft.Count(Config{ModelConfig: shape}, int64(a.LoRA.Rank), a.LoRA.Targets.Names())
	if shape.Head == torch.HeadValue {
		n += shape.HiddenSize + 1
	}
	return n
}

// Base implements Trainable.
func (a Adapter) Base() string { return a.Saved.Base }

// Attach implements Trainable. A new adapter changes nothing yet: A is drawn as PEFT does (Kaiming's uniform
// distribution with a = √5, that is up to 1/√in), B is zero; of the embedding A is zero and B drawn from the normal
// distribution.
func (a Adapter) Attach(base *torch.Model, head torch.Head, ranks Ranks) (m *torch.Model, err error) {
	if ranks.plain() {
		m, err = torch.NewAdapter(base, a.LoRA, head)
	} else {
		m, err = torch.NewShardedAdapter(base, a.LoRA, head, ranks.Group, ranks.Shards)
	}
	if err != nil {
		return nil, err
	}
	if a.Dir == "" {
		err = initAdapter(m, a.Seed)
	} else {
		err = a.Reload(m, a.Dir)
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

// Reload implements Trainable. A value head that is not in dir starts from zero.
func (Adapter) Reload(m *torch.Model, dir string) error {
	if err := VerifyModel(dir); err != nil {
		return err
	}
	a, err := peft.Open(dir, Config{ModelConfig: m.Config})
	if err != nil {
		return err
	}
	defer a.Close()
	lora := m.Config.LoRA
	_, _, targets, err := a.Uniform()
	if err == nil {
		err = a.Fit(int64(lora.Rank), lora.Scale)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	missing := lora.Targets &^ torch.TargetsOf(targets) // modules of other layers alone have none, which is zero
	return fillAdapter(m, func(name string, _ []int64) (*weights.Tensor, error) {
		t := a.Tensors[name]
		if t == nil && !strings.HasPrefix(name, "score.") && missing != 0 {
			return nil, fmt.Errorf("%s: it has no %s: the adapter has other targets than lora.targets says (%s)", dir, name,
				strings.Join(missing.Names(), ", "))
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

// Save implements Trainable, in PEFT's layout and float32. The base's config.json and the files of its tokenizer come
// with it.
func (a Adapter) Save(ctx context.Context, m *torch.Model, dir string) error {
	parameters, err := m.Parameters()
	if err != nil {
		return err
	}
	defer torch.CloseParameters(parameters)
	g := gatherer{ctx: ctx, group: m.Group()}
	g.addAll(parameters, "", weights.F32, m.Shard)
	c := a.Saved
	c.Rank, c.Targets = int64(m.Config.LoRA.Rank), m.Config.LoRA.Targets.Names()
	c.Experts = Config{ModelConfig: m.Config}.ExpertsModule()
	if err := g.write(dir != "", func() error { return peft.Save(dir, c, g.list) }); err != nil || dir == "" {
		return err
	}
	settings, err := regular.Read(filepath.Join(c.Base, "config.json"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), settings, 0o644)
	}
	if err != nil {
		return err
	}
	return hf.CopyCompanions(dir, c.Base)
}
