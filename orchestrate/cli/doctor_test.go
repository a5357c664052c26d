package cli

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestDoctor(t *testing.T) {
	dir := t.TempDir()
	var found []finding
	if err := json.Unmarshal([]byte(mustIn(t, dir, "doctor", "--json", "--model", tinyPolicy(t))), &found); err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, f := range found {
		values[f.Check] = f.Value
	}
	if v := values["sampler = trainer"]; !strings.HasPrefix(v, "exact") {
		t.Errorf("sampler = trainer: %q, expected exact", v)
	}
	if v := values["threads"]; !strings.HasPrefix(v, "1 of ") || !strings.Contains(v, "GYRE_THREADS=1") {
		t.Errorf("threads: %q, expected the 1 of GYRE_THREADS", v)
	}

	for _, args := range [][]string{{"--device", "gpu"}, {"--dtype", "float16"}, {"--threads", "2"}} {
		code, out, stderr := runIn(t, dir, append([]string{"doctor"}, args...)...)
		if code != 2 || out != "" || !strings.Contains(stderr, args[0]) {
			t.Errorf("%v: code %d, printed %q, said %q", args, code, out, stderr)
		}
	}
	code, out, _ := runIn(t, dir, "doctor", "--model", dir)
	if code != 1 || out != "" {
		t.Errorf("a model that is none: code %d, printed %q", code, out)
	}
}

func TestDoctorOfRanks(t *testing.T) {
	dir := t.TempDir()
	cmd := gyre(t, dir, "doctor", "--ranks", "2")
	cmd.Env = append(cmd.Env, "PATH=") // no launcher is found
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	text := string(out)
	for _, want := range []string{"2, started by gyre", "all-reduce of 16 MiB", "GB/s", "torchrun", "pip install torch",
		"apt install openmpi-bin"} {
		if !strings.Contains(text, want) {
			t.Errorf("doctor --ranks 2 does not say %q:\n%s", want, text)
		}
	}
	if code, _, stderr := runIn(t, dir, "doctor", "--ranks", "1"); code != 2 || !strings.Contains(stderr, "2 or more") {
		t.Errorf("one rank: code %d, %s", code, stderr)
	}
}
