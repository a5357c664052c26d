package worker

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Python finds the interpreter that a peer runs in, and says where it was named: given on the command line, in the environment
// (GYRE_BENCH_VLLM_PYTHON), as a virtual environment under peers (DIR/vllm, what setup-peers.sh makes), the active virtual
// environment, or python3.
func Python(program, given, peers string) (path, source string, err error) {
	variable := "GYRE_BENCH_" + strings.ToUpper(program) + "_PYTHON"
	inPeers, active := "", os.Getenv("VIRTUAL_ENV")
	if peers != "" {
		inPeers = filepath.Join(peers, program, "bin", "python")
		if _, err := os.Stat(inPeers); err != nil {
			inPeers = ""
		}
	}
	if active != "" {
		active = filepath.Join(active, "bin", "python")
	}
	for _, choice := range []struct{ path, source string }{
		{given, "--python"}, {os.Getenv(variable), variable}, {inPeers, peers}, {active, "VIRTUAL_ENV"}, {"python3", "PATH"},
	} {
		if choice.path == "" {
			continue
		}
		found, err := exec.LookPath(choice.path)
		if err != nil {
			return "", "", fmt.Errorf("%w: the Python named by %s: %w", ErrUnavailable, choice.source, err)
		}
		// The path stays as it is: a virtual environment's python is a link that must not be followed.
		if found, err = filepath.Abs(found); err != nil {
			return "", "", err
		}
		return found, choice.source, nil
	}
	return "", "", ErrUnavailable
}

// Preload is the OpenMP library that vLLM's guide for CPUs asks to load first, if the Python's environment has one.
func Preload(python string) string {
	library := filepath.Join(filepath.Dir(filepath.Dir(python)), "lib", "libiomp5.so")
	if _, err := os.Stat(library); err != nil {
		return ""
	}
	return library
}
