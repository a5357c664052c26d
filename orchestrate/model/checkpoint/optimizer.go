package checkpoint

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"slices"
	"strconv"

	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

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

// Ranks says how a model lies on the processes of a run. The zero value is a model in one process.
type Ranks struct {
	Group  *torch.Group // nil: this process alone, which has the model whole
	Shards torch.ShardConfig
}

// InShards reports whether each process has a part of the weights, so that a pass takes all of them.
func (r Ranks) InShards() bool { return r.Group != nil && r.Shards.Shard == torch.ShardFull }

// plain reports whether sums are those of one process: it is alone and need not have the bits of several.
func (r Ranks) plain() bool { return r.Group == nil && !r.Shards.Deterministic }

// model makes the model of a configuration where it belongs.
func (r Ranks) model(config torch.ModelConfig) (*torch.Model, error) {
	if r.plain() {
		return torch.NewModel(config)
	}
	return torch.NewShardedModel(config, r.Group, r.Shards)
}

// place copies what a process holds of a tensor out of the file, which it reads into buffer.
func place(from *weights.Tensor, buffer *[]byte, held func() (torch.Shard, error)) error {
	var err error
	if *buffer, err = from.Load(*buffer); err != nil {
		return err
	}
	s, err := held()
	if err != nil {
		return err
	}
	defer s.Tensor.Close()
	shape, err := s.Tensor.Shape()
	if err != nil || len(shape) != 1 || shape[0] == 0 {
		return err
	}
	size := from.DType.Size()
	first, last := s.First*size, (s.First+shape[0])*size
	if int64(len(*buffer)) < last {
		return fmt.Errorf("%s: tensor %s has %d bytes, expected at least %d", from.File, from.Name, len(*buffer), last)
	}
	return s.Tensor.CopyIn(inMemory(from.DType), shape, (*buffer)[first:last])
}

// gatherer writes tensors of which every process holds a part, or the only process all. All go through the same tensors
// in the same order, one at a time, so that none ever holds the whole model; one of them writes.
type gatherer struct {
	ctx   context.Context
	group *torch.Group
	list  []weights.Source
	done  int
}

// addAll lists the parameters under names with a prefix; held gives this process's part of each.
func (g *gatherer) addAll(parameters []torch.Parameter, prefix string, dtype weights.DType,
	held func(i int) (torch.Shard, error)) {
	for i, p := range parameters {
		g.list = append(g.list, weights.Source{Name: prefix + p.Name, DType: dtype, Shape: p.Shape,
			Fill: func(dst []byte) error {
				g.done++
				s, err := held(i)
				if err != nil {
					return err
				}
				defer s.Tensor.Close()
				return Assemble(g.ctx, g.group, s, inMemory(dtype), dst)
			}})
	}
}

// Assemble joins the parts that all processes hold of a tensor in dst, as dtype. It is collective.
func Assemble(ctx context.Context, group *torch.Group, s torch.Shard, dtype torch.DType, dst []byte) error {
	if group.WorldSize() == 1 {
		return s.Tensor.CopyOut(dtype, dst)
	}
	shape, err := s.Tensor.Shape()
	size := int64(dtype.Size())
	mine := binary.LittleEndian.AppendUint64(nil, uint64(s.OwnFirst*size))
	if err == nil && len(shape) == 1 && shape[0] > 0 {
		held := make([]byte, shape[0]*size)
		if err = s.Tensor.CopyOut(dtype, held); err == nil {
			mine = append(mine, held[(s.OwnFirst-s.First)*size:][:s.OwnCount*size]...)
		}
	}
	parts, failed := group.AllGather(ctx, mine)
	if err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	filled := int64(0)
	for rank, part := range parts {
		if len(part) < 8 {
			return fmt.Errorf("rank %d gave no part", rank)
		}
		first, data := int64(binary.LittleEndian.Uint64(part)), part[8:]
		if len(data) > 0 && (first < 0 || first+int64(len(data)) > int64(len(dst))) {
			return fmt.Errorf("rank %d gave bytes %d to %d of %d", rank, first, first+int64(len(data)), len(dst))
		}
		filled += int64(len(data))
		if len(data) > 0 {
			copy(dst[first:], data)
		}
	}
	if filled != int64(len(dst)) {
		return fmt.Errorf("the ranks hold %d of %d bytes", filled, len(dst))
	}
	return nil
}

// Copy gives the weights of a model that some processes of a group have together to the models that the others
// (receives) have whole, one tensor at a time. It is collective.
func Copy(ctx context.Context, group *torch.Group, m *torch.Model, receives bool) error {
	parameters, err := m.Parameters()
	if err != nil {
		return err
	}
	defer torch.CloseParameters(parameters)
	var whole []byte
	for i, p := range parameters {
		bytes := weights.Source{DType: weights.F32, Shape: p.Shape}.Bytes()
		whole = weights.Resize(whole, bytes)
		s, err := m.Shard(i)
		if err != nil {
			return err
		}
		if receives {
			s.OwnCount = 0
		}
		if err = Assemble(ctx, group, s, torch.F32, whole); err == nil && receives {
			err = s.Tensor.CopyIn(torch.F32, []int64{bytes / 4}, whole)
		}
		if err = errors.Join(err, s.Tensor.Close()); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	if receives {
		return m.Touch()
	}
	return nil
}

// write runs a writer of the list on the process that writes; the others gather only. Where writing fails the rest is
// gathered all the same: the other processes wait for it.
func (g *gatherer) write(writes bool, with func() error) error {
	var err error
	if writes {
		err = with()
	}
	var scratch []byte
	for g.done < len(g.list) {
		s := g.list[g.done]
		scratch = weights.Resize(scratch, s.Bytes())
		if failed := s.Fill(scratch); failed != nil {
			return errors.Join(err, failed)
		}
	}
	return err
}
