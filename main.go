// Gyre trains language-model agents with reinforcement learning and shows why the training moves the way it does.
package main

import (
	"os"
	"syscall"

	"gyre/orchestrate/cli"
)

func main() {
	boundSpinning()
	os.Exit(cli.Main(os.Args))
}

// boundSpinning keeps the kernels' threads from waiting for each other in busy loops of milliseconds, which costs three times the CPU when
// cores are shared with other programs. libgomp reads its settings before main, so the program starts itself once more with a
// shorter spin; whoever sets either variable decides alone.
func boundSpinning() {
	for _, name := range []string{"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} {
		if _, set := os.LookupEnv(name); set {
			return
		}
	}
	binary, err := os.Executable()
	if err != nil {
		return
	}
	os.Setenv("GOMP_SPINCOUNT", "10000")
	// On failure the program simply goes on: spinning is slow, not wrong.
	_ = syscall.Exec(binary, os.Args, os.Environ())
}
