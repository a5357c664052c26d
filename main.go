package main

import (
	"os"

	"gyre/orchestrate/cli"
)

func main() {
	os.Exit(cli.Main(os.Args))
}
