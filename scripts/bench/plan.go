package main

import "gyre/scripts/bench/work"

// prepared is a case with its tasks, the warm-up first.
type prepared struct {
	work.Case
	tasks []work.Task
}

// prepare makes all tasks and weighs them, so that the time left can be told.
func (b *bench) prepare(cases []work.Case) ([]prepared, error) {
	b.done, b.total = 0, 0
	var plan []prepared
	for _, c := range cases {
		p := prepared{Case: c}
		for repeat := range c.Repeats(b.options.repeats) + 1 {
			task, err := b.material.Task(c, repeat)
			if err != nil {
				return nil, err
			}
			p.tasks = append(p.tasks, task)
			b.total += b.weight(c, task) * float64(len(b.programs(c.Session)))
		}
		plan = append(plan, p)
	}
	return plan, nil
}

// weight is how long a task takes, in no unit. The first summand stands for what does not grow with the work.
func (b *bench) weight(c work.Case, t work.Task) float64 {
	return 0.2 + work.Bound(c, t, b.model, work.Machine{Bandwidth: 3e10, FLOPS: 1e11}).Total
}
