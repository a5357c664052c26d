package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/internal/nearest"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/serve/host"
	"gyre/torch"
)

func adapterFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "adapter", Usage: "`[NAME=]DIR`: PEFT adapter; with names, one a row"}
}

// givenAdapters are those of --adapter: one without a name, which is for all rows, or any number that have names.
func givenAdapters(c *cli.Context) (out []host.Adapter, err error) {
	words := c.StringSlice("adapter")
	for _, word := range words {
		name, dir, named := cutName(word)
		switch {
		case named && (name == "" || dir == ""):
			return nil, Usagef("--adapter is %q, expected DIR or NAME=DIR", word)
		case !named && len(words) > 1:
			return nil, Usagef("--adapter %s is for all rows, and there are %d adapters: give it a name, NAME=%s", dir,
				len(words), dir)
		case slices.ContainsFunc(out, func(a host.Adapter) bool { return a.Name == name }):
			return nil, Usagef("--adapter: two adapters have the name %q: rename one", name)
		}
		out = append(out, host.Adapter{Name: name, Dir: dir})
	}
	return out, nil
}

// modelFlags are those that say how a model is computed and what lies beside it, as openingModel reads them.
func modelFlags() []cli.Flag {
	return []cli.Flag{atLeast(0, "threads", 0, "use `N` CPU threads; 0 = one per core"), deviceFlag(), dtypeFlag()}
}

// openingModel reads the adapters of the command line and what computes them and the model, and fixes the threads.
func openingModel(c *cli.Context, model string) (adapters []host.Adapter, on torch.Placement, err error) {
	if on, err = placement(c); err != nil {
		return nil, on, err
	}
	if adapters, err = givenAdapters(c); err != nil {
		return nil, on, err
	}
	if on, err = settleType(on, model, adapters); err != nil {
		return nil, on, err
	}
	return adapters, on, openThreads(c, on)
}

// settleType chooses the type of the arithmetic where it is auto: that of the adapters' runs, or without adapters
// that of the model's.
func settleType(on torch.Placement, model string, adapters []host.Adapter) (torch.Placement, error) {
	if len(adapters) == 0 {
		settled, _, err := experiment.Settle(on, model)
		return settled, err
	}
	first, _, err := experiment.Settle(on, adapters[0].Dir)
	for _, a := range adapters[1:] {
		settled, _, problem := experiment.Settle(on, a.Dir)
		if err = errors.Join(err, problem); err == nil && settled.Compute != first.Compute {
			return on, Usagef("the adapter in %s goes with %s, that in %s with %s: choose one type for all rows with "+
				"--dtype", adapters[0].Dir, first.Compute, a.Dir, settled.Compute)
		}
	}
	return first, err
}

// openAdapters reads what the directories say of their adapters. The one without a name becomes the model of all rows.
func (p *prompts) openAdapters(given []host.Adapter) error {
	base := p.model
	p.adapters = map[string]*experiment.Model{}
	for _, a := range given {
		m, err := base.WithAdapter(a.Dir)
		if errors.Is(err, fs.ErrNotExist) {
			return Usagef("--adapter: %w", err)
		}
		if err != nil {
			return err
		}
		if a.Name == "" {
			p.model = m
		} else {
			p.adapters[a.Name] = m
		}
	}
	return nil
}

// checkAdapter refuses a row's name of an adapter that was not given.
func (p *prompts) checkAdapter(name string) error {
	if name == "" || p.adapters[name] != nil {
		return nil
	}
	names := slices.Sorted(maps.Keys(p.adapters))
	if len(names) == 0 {
		return fmt.Errorf("adapter: no adapter has the name %q, or any name: give it as --adapter %s=DIR", name, name)
	}
	return fmt.Errorf("adapter: no adapter has the name %q%s: those of --adapter are %s", name,
		nearest.Hint(name, names), strings.Join(names, ", "))
}

// policies are the models of the rows, by the name of the adapter; "" is that of rows without one, and the base of the
// others.
type policies map[string]*torch.Model

// load reads the model, and the adapters beside it. Who calls it closes what it returns.
func (p *prompts) load() (policies, error) {
	model, _, err := p.model.Load()
	if err != nil {
		return nil, openingError(err)
	}
	all := policies{"": model}
	for name, m := range p.adapters {
		adapter, err := m.Trains.Attach(model, torch.HeadLM, checkpoint.Ranks{})
		if err != nil {
			all.Close()
			return nil, openingError(err)
		}
		all[name] = adapter
	}
	return all, nil
}

// Close closes the models.
func (p policies) Close() {
	for _, m := range p {
		m.Close()
	}
}
