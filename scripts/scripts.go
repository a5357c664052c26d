// Package scripts holds the Python programs that come with gyre, so that they are found wherever it is installed.
package scripts

import _ "embed"

// WandBSink feeds a run's metrics to Weights & Biases.
//
//go:embed wandb_sink.py
var WandBSink string
