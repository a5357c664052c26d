package trainer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/train"
	"gyre/torch"
)

// lossCase is a case of testdata/losses.jsonl: the loss of a mini-batch and its derivatives by the policy's log-probs,
// computed in float64 from the definitions in docs/losses.md by another program.
type lossCase struct {
	ID, Loss   string
	Constants  map[string]any
	Importance map[string]any
	Logp       [][]float64
	Proximal   [][]float32
	Behaviour  [][]float32
	Advantages [][]float32
	Mask       [][]int
	Eligible   [][2]int
	Selected   [][2]int
	TokenMean  lossResult `json:"token_mean"`
	SeqMean    lossResult `json:"seq_mean_token_mean"`
}

type lossResult struct {
	Loss float64
	Grad [][]float64
}

// GYRE_GIVEN_CASES names other cases: scripts/check_losses.py makes random ones.
//
// TestLossesOfGivenCases runs each case through configuration, correction, statistics of the mini-batch and the
// backward pass of a model that has just these log-probs.
func TestLossesOfGivenCases(t *testing.T) {
	given := os.Getenv("GYRE_GIVEN_CASES")
	text, err := os.ReadFile(cmp.Or(given, "testdata/losses.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	m := newTable(t)
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		var c lossCase
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		seen[c.Loss] = true
		for aggregation, want := range map[string]lossResult{"token-mean": c.TokenMean, "seq-mean-token-mean": c.SeqMean} {
			t.Run(c.ID+"/"+aggregation, func(t *testing.T) { c.check(t, m, aggregation, want) })
		}
	}
	for _, loss := range torch.Losses() {
		if given == "" && loss.Compares && !seen[loss.Name] {
			t.Errorf("loss %s has no case", loss.Name)
		}
	}
}

func (c lossCase) check(t *testing.T, m *tableModel, aggregation string, want lossResult) {
	overrides := []string{"model.path=x", "actor.loss=" + c.Loss, "actor.loss_aggregation=" + aggregation}
	for key, value := range c.Constants {
		overrides = append(overrides, fmt.Sprintf("actor.%s=%v", key, value))
	}
	for key, value := range c.Importance {
		overrides = append(overrides, fmt.Sprintf("importance.%s=%v", key, value))
	}
	settings, err := config.Parse("case", []byte("[[envs]]\ntag = \"bandit\"\n"), overrides)
	if err != nil {
		t.Fatal(err)
	}
	b := m.batch(t, c.Logp)
	b.Old, b.Behaviour, b.Advantages = shifted(c.Proximal), shifted(c.Behaviour), shifted(c.Advantages)
	for i, row := range c.Mask {
		for at, bit := range row {
			b.Sequences[i].Mask[at+1] = bit == 1
		}
	}
	p := &preparation{Session: &session.Session{Config: settings}}
	if settings.Corrects() {
		p.weigh(b)
	}
	loss := train.Objective{PolicyLoss: experiment.Loss(settings)}
	current := make([][]float32, len(c.Logp))
	for i, row := range c.Logp {
		current[i] = append([]float32{0}, convert[float32](row)...)
	}
	b.FillOverBatch(loss.Task, current, rand.New(rand.NewPCG(1, 2)))
	if c.Loss == "clip_cov" {
		c.checkDraw(t, b)
	}
	b.Weigh(aggregation, 0)
	got, grad := m.backward(t, b, loss)
	if math.Abs(got-want.Loss) > 1e-5*max(1, math.Abs(want.Loss)) {
		t.Errorf("loss %.9g, want %.9g", got, want.Loss)
	}
	largest := 0.0
	for _, row := range want.Grad {
		for _, g := range row {
			largest = max(largest, math.Abs(g))
		}
	}
	for i, row := range want.Grad {
		for at, g := range row {
			if math.Abs(grad[i][at+1]-g) > 1e-5*max(largest, 1e-3) {
				t.Errorf("token %d of episode %d: derivative %.9g, want %.9g", at, i, grad[i][at+1], g)
			}
		}
	}
}

// checkDraw compares how many tokens are drawn, and from which, and then takes those of the case.
func (c lossCase) checkDraw(t *testing.T, b *train.Batch) {
	drawn := 0
	for i, row := range b.OverBatch {
		for at, v := range row {
			if v == 0 {
				continue
			}
			drawn++
			if !slices.Contains(c.Eligible, [2]int{i, at - 1}) {
				t.Errorf("token %d of episode %d was drawn, which is not eligible", at-1, i)
			}
			row[at] = 0
		}
	}
	if drawn != len(c.Selected) {
		t.Errorf("%d tokens drawn, want %d", drawn, len(c.Selected))
	}
	for _, p := range c.Selected {
		b.OverBatch[p[0]][p[1]+1] = 1
	}
}

// shifted has a zero before each row: the first token of a sequence is never predicted.
func shifted(column [][]float32) [][]float32 {
	out := make([][]float32, len(column))
	for i, row := range column {
		out[i] = append([]float32{0}, row...)
	}
	return out
}

// tableModel is a policy whose log-probs are given: attention and MLP write nothing, so the hidden state of token k is
// √width times the unit vector k, and column k of the head has one number, the logit of token k+1.
type tableModel struct {
	learner *train.Learner
	head    *torch.Tensor
	at      int // of the head among the parameters
	logits  []float64
}

const tableWidth = 128

func newTable(t *testing.T) *tableModel {
	t.Helper()
	model, err := torch.NewModel(torch.ModelConfig{VocabSize: tableWidth, HiddenSize: tableWidth, NumLayers: 1,
		NumHeads: 2, NumKVHeads: 2, HeadDim: 64, IntermediateSize: 64, MaxPositions: tableWidth, RMSNormEps: 1e-12, RopeTheta: 1e4})
	if err != nil {
		t.Fatal(err)
	}
	parameters, err := model.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	m := &tableModel{}
	for i, p := range parameters {
		switch {
		case p.Name == "lm_head.weight":
			m.head, m.at = p.Tensor, i
		case p.Name == "model.embed_tokens.weight":
			unit := make([]float32, tableWidth*tableWidth)
			for k := range tableWidth {
				unit[k*tableWidth+k] = 1
			}
			err = p.Tensor.SetFloat32s(unit)
		case strings.Contains(p.Name, "norm"):
			err = p.Tensor.SetFloat32s(slices.Repeat([]float32{1}, tableWidth))
		}
		if err != nil {
			t.Fatal(p.Name, err)
		}
	}
	if m.learner, err = train.NewLearner(model, train.Placement{PassTokens: 1 << 20}, &train.Optimization{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.learner.Close() })
	return m
}

// batch is one of sequences of consecutive tokens whose log-probs are those that are given, but for the first of each.
func (m *tableModel) batch(t *testing.T, logprobs [][]float64) *train.Batch {
	t.Helper()
	b, id := &train.Batch{}, int32(0)
	m.logits = make([]float64, tableWidth)
	head := make([]float32, tableWidth*tableWidth)
	for _, row := range logprobs {
		s := train.Sequence{IDs: []int32{id}, Mask: make([]bool, len(row)+1)}
		for _, x := range row {
			// exp(x) = exp(z)/(exp(z) + width - 1)
			m.logits[id] = x - math.Log(-math.Expm1(x)) + math.Log(tableWidth-1)
			head[int(id+1)*tableWidth+int(id)] = float32(m.logits[id] / math.Sqrt(tableWidth))
			id++
			s.IDs = append(s.IDs, id)
		}
		id++
		b.Sequences = append(b.Sequences, s)
	}
	if err := m.head.SetFloat32s(head); err != nil {
		t.Fatal(err)
	}
	if err := m.learner.Model.Touch(); err != nil {
		t.Fatal(err)
	}
	return b
}

// backward gives the loss and its derivatives by the log-probs, read from the gradient of the head: that of the logit
// of another token than the next is -derivative·probability·√width.
func (m *tableModel) backward(t *testing.T, b *train.Batch, o train.Objective) (float64, [][]float64) {
	t.Helper()
	gradients := m.learner.Gradients()
	if err := gradients.Zero(); err != nil {
		t.Fatal(err)
	}
	losses, err := m.learner.Backward(t.Context(), b, o, train.Terms(gradients, false)[:1])
	if err != nil {
		t.Fatal(err)
	}
	tensor, err := gradients.Tensor(m.at)
	if err != nil {
		t.Fatal(err)
	}
	defer tensor.Close()
	values, err := tensor.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	out := make([][]float64, b.Len())
	for i, s := range b.Sequences {
		out[i] = make([]float64, len(s.IDs))
		for at := 1; at < len(s.IDs); at++ {
			from := int(s.IDs[at-1])
			share := 1 / (math.Exp(m.logits[from]) + tableWidth - 1) // the probability of another token
			out[i][at] = float64(-values[from*tableWidth+from]) / share / math.Sqrt(tableWidth)
		}
	}
	return losses.Columns[0].Loss, out
}
