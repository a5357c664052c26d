package cli

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The job of the cluster starts the run in the container with its folders and caches, passes the signal of the
// scheduler on, and queues itself again when the run has saved.
func TestClusterJob(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	base, bin := t.TempDir(), t.TempDir()
	for name, body := range map[string]string{
		"bin/apptainer": "case \"$*\" in *doctor*) exit 0 ;; esac\nprintf '<%s>' \"$@\"\nexit ${STUB:-0}\n",
		"bin/scontrol":  "echo requeued \"$@\"\n",
		"gyre.sif":      "",
	} {
		path := filepath.Join(base, name)
		if strings.HasPrefix(name, "bin/") {
			path = filepath.Join(bin, filepath.Base(name))
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	job := func(stub string, args ...string) (string, error) {
		cmd := exec.Command("bash", append([]string{filepath.Join(root, "scripts/cluster/math500.slurm")}, args...)...)
		cmd.Env = append(os.Environ(), "BASE="+base, "SLURM_SUBMIT_DIR="+root, "SLURM_JOB_ID=7", "STUB="+stub,
			"PATH="+bin+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := job("0", "run.steps=5")
	for _, want := range []string{"<--bind><" + base + ":/mnt/user>", "<HF_HOME=/mnt/user/hf_cache>",
		"<TRANSFORMERS_CACHE=/mnt/user/hf_cache>", "<--pwd></mnt/user>",
		"<gyre><train></opt/gyre/configs/math500_grpo_1gpu.toml><--resume>",
		"<run.output=/mnt/user/runs><run.steps=5>"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%v, the job does not say %s:\n%s", err, want, out)
		}
	}
	// The project's folder, the caches and verl's sources are where the environment says; what is not below BASE is
	// bound too.
	project := exec.Command("bash", filepath.Join(root, "scripts/cluster/math500.slurm"))
	project.Env = append(os.Environ(), "BASE="+base, "SLURM_SUBMIT_DIR="+root, "PATH="+bin+":"+os.Getenv("PATH"),
		"PROJECT="+base+"/cs498repo/rldynamic",
		"TRANSFORMERS_CACHE=/scratch/hub", "VERL_SRC=/opt/verl")
	said, err := project.CombinedOutput()
	for _, want := range []string{"<--pwd></mnt/user/cs498repo/rldynamic>", "<PROJECT=/mnt/user/cs498repo/rldynamic>",
		"<--bind></scratch/hub:/scratch/hub>",
		"<TRANSFORMERS_CACHE=/scratch/hub>", "<HF_HOME=/mnt/user/hf_cache>", "<--bind></opt/verl:/opt/verl>",
		"<PYTHONPATH=/opt/verl>", "<VERL_SRC=/opt/verl>"} {
		if err != nil || !strings.Contains(string(said), want) {
			t.Errorf("%v, the job does not say %s:\n%s", err, want, said)
		}
	}
	if out, err := job("143"); err != nil || !strings.Contains(out, "requeued requeue 7") {
		t.Errorf("a run that was stopped: %v\n%s", err, out)
	}
	// A signal reaches the run itself, and the job waits until it has saved.
	if err := os.WriteFile(filepath.Join(bin, "apptainer"),
		[]byte("#!/bin/bash\ncase \"$*\" in *doctor*) exit 0 ;; esac\n"+
			"trap 'sleep 0.5; echo has saved; exit 143' TERM\necho training\nfor i in $(seq 600); do sleep 0.05; done\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", filepath.Join(root, "scripts/cluster/math500.slurm"))
	cmd.Env = append(os.Environ(), "BASE="+base, "SLURM_SUBMIT_DIR="+root, "SLURM_JOB_ID=7",
		"PATH="+bin+":"+os.Getenv("PATH"))
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	heard := ""
	for lines.Scan() {
		if heard += lines.Text() + "\n"; lines.Text() == "training" {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil || !strings.HasSuffix(heard,
		"has saved\nsaved; queueing the job again\nrequeued requeue 7\n") {
		t.Errorf("after a signal: %v\n%s", err, heard)
	}
	if err := os.WriteFile(filepath.Join(bin, "apptainer"),
		[]byte("#!/bin/sh\ncase \"$*\" in *doctor*) exit 0 ;; esac\nprintf '<%s>' \"$@\"\nexit ${STUB:-0}\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := job("1", "other.toml"); err == nil || strings.Contains(out, "requeued") ||
		!strings.Contains(out, "<train><other.toml>") {
		t.Errorf("a run that failed: %v\n%s", err, out)
	}
	if err := os.Remove(filepath.Join(base, "gyre.sif")); err != nil {
		t.Fatal(err)
	}
	if out, err := job("0"); err == nil || !strings.Contains(out, "apptainer build") {
		t.Errorf("without an image: %v\n%s", err, out)
	}
}

// The job over many nodes starts a container per rank, lets in what says which rank it is, and names the network
// between the nodes.
func TestClusterRanksJob(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	base, bin := t.TempDir(), t.TempDir()
	for path, body := range map[string]string{
		filepath.Join(bin, "apptainer"): "printf '<%s>' \"$@\"\necho \" rank $APPTAINERENV_SLURM_PROCID\"\nexit " +
			"${STUB:-0}\n",
		filepath.Join(bin, "srun"):      "while [ \"${1#--}\" != \"$1\" ]; do shift; done\nSLURM_PROCID=5 exec \"$@\"\n",
		filepath.Join(bin, "scontrol"):  "echo requeued \"$@\"\n",
		filepath.Join(base, "gyre.sif"): "",
	} {
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	job := func(nodes, stub string, args ...string) (string, error) {
		cmd := exec.Command("bash", append([]string{filepath.Join(root, "scripts/cluster/ranks.slurm")}, args...)...)
		cmd.Env = append(os.Environ(), "BASE="+base, "SLURM_SUBMIT_DIR="+root, "SLURM_JOB_ID=7",
			"SLURM_JOB_NUM_NODES="+nodes, "NETWORK=ib7", "STUB="+stub, "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := job("2", "0", "c.toml", "run.steps=5")
	if want := "<gyre><train><c.toml><--resume><run.output=/mnt/user/runs><model.device=cuda><fsdp.bind=ib7><run.steps=5> rank 5"; err != nil || !strings.Contains(out, want) {
		t.Errorf("%v, the job does not say %s:\n%s", err, want, out)
	}
	if out, err := job("1", "143", "c.toml"); err != nil || strings.Contains(out, "fsdp.bind") ||
		!strings.Contains(out, "requeued requeue 7") {
		t.Errorf("one node, stopped: %v\n%s", err, out)
	}
	if out, err := job("1", "1", "c.toml"); err == nil || strings.Contains(out, "requeued") {
		t.Errorf("a run that failed: %v\n%s", err, out)
	}
}

// Two ranks under the real launchers, where they are installed: the script says which it has left out.
func TestLaunchers(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "gyre")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nGYRE_TEST_COMMAND=1 exec "+binary+" \"$@\"\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", filepath.Join(root, "scripts/cluster/launchers.sh"), "torchrun", "mpirun")
	cmd.Env = append(os.Environ(), "GYRE="+program)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	t.Logf("%s", out)
	for _, launcher := range []string{"torchrun", "mpirun"} {
		if text := string(out); !strings.Contains(text, launcher+": not installed here") &&
			!strings.Contains(text, launcher+": gyre: rank 0 of 2 ("+launcher+
				", 2 on this machine)\n  two ranks agree") {
			t.Errorf("%s is not accounted for:\n%s", launcher, text)
		}
	}
}
