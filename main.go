// Gyre trains language-model agents with reinforcement learning and shows why the training moves the way it does.
package main

import (
	"os"

	"gyre/orchestrate/cli"
)

func main() {
	os.Exit(cli.Main(os.Args))
}
