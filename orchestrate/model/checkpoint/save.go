package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"strconv"

	"gyre/orchestrate/model/checkpoint/hf"
	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

// SaveModel writes the model into the existing directory dir in Hugging Face's layout, as dtype. Token ids come from
// source's config.json and the tokenizer's files from source; an empty source leaves both out. Of a model over ranks all call it, those that write
// nothing with an empty dir.
func SaveModel(ctx context.Context, m *torch.Model, dir, source string, dtype torch.DType) error {
	c, err := describe(m.Config)
	if err != nil {
		return err
	}
	if c.DType, err = fileDType(dtype); err != nil {
		return err
	}
	if source != "" {
		from, err := hf.ReadConfig(source)
		if err != nil {
			return err
		}
		c.BOS, c.EOS, c.PAD = from.BOS, from.EOS, from.PAD
	}
	parameters, err := m.Parameters()
	if err != nil {
		return err
	}
	defer torch.CloseParameters(parameters)
	if m.Sharded() {
		g := gatherer{ctx: ctx, group: m.Group()}
		for i, p := range parameters {
			shape, err := p.Tensor.Shape()
			if err != nil {
				return err
			}
			g.add(p.Name, shape, c.DType, func() (torch.Shard, error) { return m.Shard(i) })
		}
		if err := g.write(dir != "", func() error { return hf.Save(dir, c, g.list, hf.ShardSize) }); err != nil || dir == "" {
			return err
		}
		return companions(dir, source)
	}
	var list []weights.Source
	for _, p := range parameters {
		s, err := sourceOf(p.Name, p.Tensor, c.DType)
		if err != nil {
			return err
		}
		list = append(list, s)
	}
	if err := hf.Save(dir, c, list, hf.ShardSize); err != nil {
		return err
	}
	return companions(dir, source)
}

// companions copies the tokenizer's files.
func companions(dir, source string) error {
	if source == "" {
		return nil
	}
	return hf.CopyCompanions(dir, source)
}

func sourceOf(name string, t *torch.Tensor, dtype weights.DType) (weights.Source, error) {
	shape, err := t.Shape()
	return weights.Source{Name: name, DType: dtype, Shape: shape, Fill: func(dst []byte) error {
		return t.CopyOut(dtypes[dtype], dst)
	}}, err
}

// moments name the two states of AdamW, as torch.optim does.
var moments = map[torch.Moment]string{torch.FirstMoment: "exp_avg", torch.SecondMoment: "exp_avg_sq"}

// SaveOptimizer writes the moments and the step count of a model's optimizer to one safetensors file: "exp_avg.NAME",
// "exp_avg_sq.NAME".
func SaveOptimizer(ctx context.Context, path string, m *torch.Model, o *torch.Optimizer) (err error) {
	if m.Sharded() {
		return saveMoments(ctx, path, m, o)
	}
	var list []weights.Source
	err = eachMoment(m, o, func(name string, t *torch.Tensor, _ torch.Shard) (keep bool, err error) {
		s, err := sourceOf(name, t, weights.F32)
		list = append(list, s)
		return true, err
	}, func() error {
		return weights.Write(path, list, stepsOf(o))
	})
	return err
}

func saveMoments(ctx context.Context, path string, m *torch.Model, o *torch.Optimizer) error {
	parameters, err := m.Parameters()
	if err != nil {
		return err
	}
	defer torch.CloseParameters(parameters)
	g := gatherer{ctx: ctx, group: m.Group()}
	for _, which := range []torch.Moment{torch.FirstMoment, torch.SecondMoment} {
		for i, p := range parameters {
			shape, err := p.Tensor.Shape()
			if err != nil {
				return err
			}
			g.add(moments[which]+"."+p.Name, shape, weights.F32, func() (torch.Shard, error) { return o.Shard(which, i) })
		}
	}
	return g.write(path != "", func() error { return weights.Write(path, g.list, stepsOf(o)) })
}

func stepsOf(o *torch.Optimizer) map[string]string {
	return map[string]string{"optimizer": "adamw", "steps": strconv.FormatInt(o.Steps(), 10)}
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
	defer debug.FreeOSMemory() // the buffer, as in fill
	var buffer []byte
	err = eachMoment(m, o, func(name string, t *torch.Tensor, shard torch.Shard) (keep bool, err error) {
		from := byName[name]
		if from == nil || !from.DType.Float() {
			return false, fmt.Errorf("%s: tensor %s is missing or not of a float type", path, name)
		}
		delete(byName, name)
		if buffer, err = from.Load(buffer); err != nil {
			return false, err
		}
		if m.Sharded() {
			return false, hold(shard, from, buffer)
		}
		if err := t.CopyIn(dtypes[from.DType], from.Shape, nil, buffer); err != nil {
			return false, fmt.Errorf("%s: tensor %s: %w", path, name, err)
		}
		return false, nil
	}, func() error { return nil })
	if err != nil {
		return err
	}
	if len(byName) > 0 {
		return fmt.Errorf("%s: %d tensors too many for this model", path, len(byName))
	}
	return o.SetSteps(steps)
}

// eachMoment calls visit for every moment of every parameter and then finish; tensors that visit keeps stay open
// until finish is done.
func eachMoment(m *torch.Model, o *torch.Optimizer, visit func(name string, t *torch.Tensor, shard torch.Shard) (keep bool, err error), finish func() error) error {
	parameters, err := m.Parameters()
	if err != nil {
		return err
	}
	defer torch.CloseParameters(parameters)
	for _, which := range []torch.Moment{torch.FirstMoment, torch.SecondMoment} {
		for i, p := range parameters {
			var shard torch.Shard
			var t *torch.Tensor
			if m.Sharded() {
				shard, err = o.Shard(which, i)
				t = shard.Tensor
			} else {
				t, err = o.State(which, i)
			}
			if err != nil {
				return err
			}
			keep, err := visit(moments[which]+"."+p.Name, t, shard)
			if !keep || err != nil {
				t.Close()
			} else {
				defer t.Close()
			}
			if err != nil {
				return err
			}
		}
	}
	return finish()
}
