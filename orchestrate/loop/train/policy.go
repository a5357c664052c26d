package train

import (
	"context"

	"gyre/torch"
)

// Policy is a model that learns, as a training step uses it. How a batch is dealt to ranks and lanes and cut into
// passes is its own affair: every rank hands over the whole batch and gets the results of all. All methods are
// collective over the ranks.
type Policy interface {
	// Compute computes a column of the batch.
	Compute(ctx context.Context, b *Batch, what What) ([][]float32, error)
	// Backward adds the gradient of each column to its buffer. It leaves the weights as they are.
	Backward(ctx context.Context, b *Batch, o Objective, columns []Column) (Losses, error)
	// Step changes the weights by the gradients in Gradients, and empties them. A gradient that is not finite changes
	// nothing.
	Step(lr float64) (torch.StepResult, error)
	// Gradients is the buffer that Step takes.
	Gradients() *torch.Gradients
}

// What says what Compute computes: a policy's log-probs, or its entropies, at a temperature. A value network gives its
// values.
type What struct {
	Entropy     bool
	Temperature float64
}

// Objective holds the constants of the loss terms of a policy, or of a value network's loss.
type Objective struct {
	torch.PolicyLoss
	ClipValue float64
	Dropout   torch.Dropout // of adapters: see Learner.Dropout
}

// Likelihood is the objective of supervised learning: minus the log-prob of each token.
func Likelihood(temperature float64) Objective {
	return Objective{PolicyLoss: torch.PolicyLoss{Task: torch.NewLoss("nll", nil), Temperature: temperature}}
}

// Column asks for one gradient of a batch. All columns of a call share its forward passes, and those that share a
// buffer its backward passes.
type Column struct {
	Name       string           // unique in a call
	Kind       torch.TermKind   // of the objective; a value network has one loss only
	Advantages [][]float32      // by row; nil: the batch's
	Weights    [][]float32      // by row; nil: the batch's
	Into       *torch.Gradients // the gradient is added to it; nil: only the loss is wanted
}

// Terms are the columns of the usual loss: task, entropy and KL, and of a mixture of experts their balance, into one
// buffer.
func Terms(into *torch.Gradients, mixture bool) []Column {
	columns := []Column{{Name: torch.Task, Kind: torch.TermTask, Into: into},
		{Name: torch.Entropy, Kind: torch.TermEntropy, Into: into},
		{Name: torch.KL, Kind: torch.TermKL, Into: into}}
	if mixture {
		columns = append(columns, Column{Name: torch.Balance, Kind: torch.TermBalance, Into: into})
	}
	return columns
}

// Loss is what a backward pass found of one column: sums over the masked tokens.
type Loss = torch.TermStats

// Losses are what Backward found, summed over all passes and ranks.
type Losses struct {
	Columns       []Loss  // in the order of the columns
	Tokens        float64 // masked
	LogRatio      float64 // Σ of the old log-probs less the new ones, clamped
	LogprobGapMax float64 // the largest distance of an old log-prob from the new one
	ValueSum      float64 // of a value network
}

// Add adds what another pass found of the same columns.
func (l *Losses) Add(other Losses) {
	if l.Columns == nil {
		l.Columns = make([]Loss, len(other.Columns))
	}
	for i, c := range other.Columns {
		sum := &l.Columns[i]
		sum.Loss, sum.Value = sum.Loss+c.Loss, sum.Value+c.Value
		sum.Clipped, sum.ClippedLower = sum.Clipped+c.Clipped, sum.ClippedLower+c.ClippedLower
	}
	l.Tokens, l.LogRatio, l.ValueSum = l.Tokens+other.Tokens, l.LogRatio+other.LogRatio, l.ValueSum+other.ValueSum
	l.LogprobGapMax = max(l.LogprobGapMax, other.LogprobGapMax)
}
