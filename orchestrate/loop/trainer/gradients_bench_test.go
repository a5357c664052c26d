package trainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/gradients"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/schedule"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// benchTrainer is a policy of 3.5 million parameters and a prepared batch of 48 episodes of 128 tokens, half of them
// sampled, in six groups of eight.
func benchTrainer(b *testing.B, overrides ...string) (*session.Session, *Prepared) {
	b.Helper()
	c, err := config.Parse("bench.toml", []byte(`
[model]
path = "none"
dtype = "float32"
[[envs]]
tag = "sokoban"
groups = 6
group_size = 8
[algorithm]
advantage = "grpo"
kl_coef = 0.001
[actor]
lr = 1e-7
mini_batch = 48
`), overrides)
	if err != nil {
		b.Fatal(err)
	}
	model, err := torch.NewModel(torch.ModelConfig{Family: torch.Llama, Head: torch.HeadLM, VocabSize: 4096,
		HiddenSize: 192, IntermediateSize: 768,
		NumLayers: 5, NumHeads: 6, NumKVHeads: 2, HeadDim: 32, MaxPositions: 256, RMSNormEps: 1e-5, RopeTheta: 1e4,
		TieEmbeddings: true})
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	parameters, err := model.Parameters()
	if err != nil {
		b.Fatal(err)
	}
	for _, p := range parameters {
		values, err := p.Tensor.Float32s()
		if err != nil {
			b.Fatal(err)
		}
		for i := range values {
			values[i] = float32(r.NormFloat64() * 0.05)
		}
		if err := p.Tensor.SetFloat32s(values); err != nil {
			b.Fatal(err)
		}
	}
	torch.CloseParameters(parameters)
	if err := model.Touch(); err != nil {
		b.Fatal(err)
	}
	t := session.New(c, metrics.NewConsole(io.Discard), ranks.Alone())
	if t.Actor, err = train.NewLearner(model, t.Placement(),
		&train.Optimization{AdamW: torch.AdamW{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}, ClipGrad: 1}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(t.Actor.Close)
	s := &Prepared{Selection: Selection{Batch: &train.Batch{}}, objective: train.Objective{PolicyLoss: experiment.Loss(c)}}
	for g := range 6 {
		for range 8 {
			x := &episode.Episode{Group: g}
			var reference, advantages []float32
			for i := range 128 {
				x.IDs = append(x.IDs, int32(r.IntN(4096)))
				x.Mask = append(x.Mask, i >= 64)
				reference = append(reference, -8+float32(r.NormFloat64()))
				advantages = append(advantages, float32(r.NormFloat64()))
			}
			s.Episodes, s.RewardStd = append(s.Episodes, x), append(s.RewardStd, float64(g))
			s.Batch.Reference, s.Batch.Advantages = append(s.Batch.Reference, reference),
				append(s.Batch.Advantages, advantages)
		}
	}
	s.Batch.Sequences = session.BatchOf(s.Episodes).Sequences
	if s.Batch.Old, err = t.Actor.Compute(context.Background(), s.Batch, train.What{Temperature: 1}); err != nil {
		b.Fatal(err)
	}
	return t, s
}

func plainUpdate(b *testing.B, t *session.Session, s *Prepared) {
	u := update{Session: t, preparation: &preparation{Session: t}, actorRate: schedule.Schedule{Kind: "constant", Peak: 1e-7}}
	if err := u.actor(context.Background(), &Step{Number: 1, Chosen: *s, Line: metrics.Line{}}); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkUpdate is what the analysis is compared with: one plain update of the batch.
func BenchmarkUpdate(b *testing.B) {
	t, s := benchTrainer(b)
	for b.Loop() {
		plainUpdate(b, t, s)
	}
}

func benchAnalysis(b *testing.B, overrides ...string) {
	t, s := benchTrainer(b, overrides...)
	for b.Loop() {
		buckets, err := bucketsOf(t.Config, s.Selection)
		if err != nil {
			b.Fatal(err)
		}
		subject := subjectOf(t, s)
		o := gradients.OptionsOf(t.Config)
		if _, err := gradients.MeasureBuckets(context.Background(), subject, buckets, o); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAnalysis(b *testing.B) {
	b.Run("exact", func(b *testing.B) { benchAnalysis(b, "analysis.memory_mib=1024") })
	b.Run("exact, sketches", func(b *testing.B) { benchAnalysis(b, "analysis.memory_mib=0") })
	b.Run("exact, low memory", func(b *testing.B) { benchAnalysis(b, "analysis.low_memory=true") })
	b.Run("exact, task only", func(b *testing.B) {
		benchAnalysis(b, "algorithm.kl_coef=0",
			"algorithm.entropy_coef=0")
	})
	// RAGEN's procedure on the same kernels: a forward pass for each term, each bucket and again for all of them.
	b.Run("RAGEN's procedure", func(b *testing.B) {
		benchAnalysis(b, "analysis.profile=paper",
			"analysis.low_memory=true")
	})
}

// BenchmarkComponents measures the gradients of the reward components on the same batch, with their bands: without and
// with the loss's other terms. Without, the cost in plain updates has a limit.
func BenchmarkComponents(b *testing.B) {
	for parts, limit := range map[int]float64{3: 2.2, 8: 4.5} {
		for _, terms := range []bool{false, true} {
			name, overrides := fmt.Sprintf("%d parts", parts), []string{"algorithm.kl_coef=0",
				"algorithm.entropy_coef=0"}
			if terms {
				name, overrides = name+", entropy and KL", nil
			}
			b.Run(name, func(b *testing.B) {
				t, s := benchTrainer(b, append(overrides, "algorithm.advantage=grpo", "components.enabled=true",
					"components.mode=exact")...)
				r := rand.New(rand.NewPCG(1, 1))
				for _, x := range s.Episodes {
					x.Components, x.Score = map[string][]episode.Reward{}, 0
					for k := range parts {
						v := r.NormFloat64()
						x.Components[string(rune('a'+k))] = []episode.Reward{{Token: 127, Value: v}}
						x.Score += v
					}
				}
				plainUpdate(b, t, s) // warms up
				begin := time.Now()
				plainUpdate(b, t, s)
				plain := time.Since(begin).Seconds()
				for b.Loop() {
					if _, err := (&componentObserver{Session: t}).measure(context.Background(), 1, s,
						metrics.Line{}); err != nil {
						b.Fatal(err)
					}
				}
				cost := b.Elapsed().Seconds() / float64(b.N) / plain
				b.ReportMetric(cost, "updates/op")
				if !terms && cost > limit {
					b.Errorf("%d parts cost %.2f plain updates, expected at most %g", parts, cost, limit)
				}
			})
		}
	}
}

// BenchmarkForecast is what the prediction of an update costs beside an analysis of the same batch, in CPU time of plain
// updates.
func BenchmarkForecast(b *testing.B) {
	t, s := benchTrainer(b, "analysis.memory_mib=1024")
	cpu := func(f func()) float64 {
		var before, after syscall.Rusage
		err := syscall.Getrusage(syscall.RUSAGE_SELF, &before)
		f()
		if err := errors.Join(err, syscall.Getrusage(syscall.RUSAGE_SELF, &after)); err != nil {
			b.Fatal(err)
		}
		return float64(after.Utime.Nano()+after.Stime.Nano()-before.Utime.Nano()-before.Stime.Nano()) / 1e9
	}
	var update, without, with, rest float64
	for b.Loop() {
		update += cpu(func() { plainUpdate(b, t, s) })
		for _, pulls := range []bool{false, true} {
			buckets, err := bucketsOf(t.Config, s.Selection)
			if err != nil {
				b.Fatal(err)
			}
			subject, o := subjectOf(t, s), gradients.OptionsOf(t.Config)
			o.Pulls = pulls
			var report *gradients.Report
			took := cpu(func() { report, err = gradients.MeasureBuckets(context.Background(), subject, buckets, o) })
			if err != nil {
				b.Fatal(err)
			}
			if !pulls {
				without += took
				continue
			}
			with += took
			returns := make([]float64, len(s.Episodes))
			for i := range returns {
				returns[i] = float64(i % 3)
			}
			rest += cpu(func() {
				weights, err := gradients.Remember(t.Actor.Model)
				if err != nil {
					b.Fatal(err)
				}
				defer weights.Close()
				if _, err := gradients.Moved(weights, t.Actor.Model); err != nil {
					b.Fatal(err)
				}
				report.Predict(subject.Batch, returns, 0, true, report.Task[0].Sketch)
			})
		}
	}
	b.ReportMetric((with-without)/update, "sketches/update")
	b.ReportMetric(rest/update, "prediction/update")
	b.ReportMetric(without/update, "analysis/update")
}
