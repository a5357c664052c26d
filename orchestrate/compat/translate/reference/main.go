package main

import (
	"fmt"
	"os"

	"gyre/orchestrate/compat/translate"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: reference from-ragen.md")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1], translate.Reference(), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}
