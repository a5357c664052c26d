package trainer

import (
	"gyre/orchestrate/config"
	"gyre/torch"
)

// placement says what computes the run's models.
func placement(c *config.Config) torch.Placement {
	return torch.Placement{Device: c.Model.Device, Compute: torch.Compute(c.Model.DType)}
}
