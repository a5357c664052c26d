package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"slices"
	"strconv"

	"gyre/orchestrate/model/checkpoint/hf"
	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

// SaveModel writes the model into the existing directory dir in Hugging Face's layout, as dtype. Token ids come from
// source's config.json and the tokenizer's files from source; an empty source leaves both out. Of a model over ranks
// all call it, those that write nothing with an empty dir.
func SaveModel(ctx context.Context, m *torch.Model, dir, source string, dtype torch.DType) error {
	c := Config{ModelConfig: m.Config, DType: weights.DType(dtype)}
	if source != "" {
		from, err := hf.ReadConfig(source)
		if err != nil {
			return err
		}
		c.BOS, c.EOS, c.PAD = from.BOS, from.EOS, from.PAD
		c.From(from)
	}
	parameters, err := m.Parameters()
	if err != nil {
		return err
	}
	defer torch.CloseParameters(parameters)
	g := gatherer{ctx: ctx, group: m.Group()}
	g.addAll(parameters, "", c.DType, m.Shard)
	if err := g.write(dir != "", func() error { return hf.Save(dir, c, g.list, hf.ShardSize) }); err != nil ||
		dir == "" || source == "" {
		return err
	}
	return hf.CopyCompanions(dir, source)
}

// moments are the two states of AdamW and their names, which are torch.optim's.
var moments = map[torch.Moment]string{torch.FirstMoment: "exp_avg", torch.SecondMoment: "exp_avg_sq"}

// SaveOptimizer writes the moments and the step count of a model's optimizer to one safetensors file: "exp_avg.NAME",
// "exp_avg_sq.NAME". Of a model over ranks all call it, those that write nothing with an empty path.
func SaveOptimizer(ctx context.Context, path string, m *torch.Model, o *torch.Optimizer) error {
	parameters, err := m.Parameters()
	if err != nil {
		return err
	}
	defer torch.CloseParameters(parameters)
	g := gatherer{ctx: ctx, group: m.Group()}
	for _, which := range []torch.Moment{torch.FirstMoment, torch.SecondMoment} {
		g.addAll(parameters, moments[which]+".", weights.F32, func(i int) (torch.Shard, error) {
			return o.Shard(which, i)
		})
	}
	metadata := map[string]string{"optimizer": "adamw", "steps": strconv.FormatInt(o.Steps(), 10)}
	return g.write(path != "", func() error { return weights.Write(path, g.list, metadata) })
}

// LoadOptimizer restores what SaveOptimizer wrote. The optimizer must belong to a model of the same shape.
func LoadOptimizer(path string, m *torch.Model, o *torch.Optimizer) error {
	f, err := weights.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: the checkpoint was saved without optimizer state: %w", path, err)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	steps, err := strconv.ParseInt(f.Metadata["steps"], 10, 64)
	if err != nil || steps < 0 || f.Metadata["optimizer"] != "adamw" {
		return fmt.Errorf("%s: not the state of an AdamW optimizer (steps %q)", path, f.Metadata["steps"])
	}
	byName := map[string]*weights.Tensor{}
	for _, t := range f.Tensors {
		byName[t.Name] = t
	}
	parameters, err := m.Parameters()
	if err != nil {
		return err
	}
	defer torch.CloseParameters(parameters)
	defer debug.FreeOSMemory() // the buffer, as in fill
	var buffer []byte
	for which, moment := range moments {
		for i, p := range parameters {
			name := moment + "." + p.Name
			from := byName[name]
			if from == nil || !from.DType.Float() || !slices.Equal(from.Shape, p.Shape) {
				return fmt.Errorf("%s: tensor %s: missing, or not of a float type and the shape %v", path, name,
					p.Shape)
			}
			held := func() (torch.Shard, error) { return o.Shard(which, i) }
			if err := place(from, &buffer, held); err != nil {
				return fmt.Errorf("%s: tensor %s: %w", path, name, err)
			}
			delete(byName, name)
		}
	}
	if len(byName) > 0 {
		return fmt.Errorf("%s: %d tensors too many for this model", path, len(byName))
	}
	return o.SetSteps(steps)
}
