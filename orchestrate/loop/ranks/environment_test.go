package ranks

import (
	"strings"
	"testing"
)

func TestRecognise(t *testing.T) {
	for _, x := range []struct {
		name string
		env  map[string]string
		want Place
		many bool
		err  string
	}{
		// a batch script, not a task
		{"alone", map[string]string{"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, Place{}, false, ""},
		{"torchrun", map[string]string{"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
			"MASTER_ADDR": "a", "MASTER_PORT": "29500",
			"TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_RESTART_COUNT": "1", "TORCHELASTIC_USE_AGENT_STORE": "True",
			"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
			Place{Launcher: "torchrun", Rank: 1, Size: 4, LocalRank: 1, LocalSize: 2, Job: "x.1",
				AgentStore: "a:29500"}, true, ""},
		{"one of torchrun", map[string]string{"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "x"}, Place{},
			false, ""},
		{"mpirun", map[string]string{"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4",
			"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
			"PMIX_NAMESPACE": "prterun-h-1@1"}, Place{Launcher: "mpirun", Rank: 3, Size: 4, LocalRank: 1, LocalSize: 2,
			Job: "prterun-h-1@1"}, true, ""},
		{"srun", map[string]string{"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "0",
			"SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_JOB_ID": "7",
			"SLURM_STEP_ID": "0"}, Place{Launcher: "srun", Rank: 2, Size: 4, LocalSize: 2, Job: "7.0"}, true, ""},
		{"PyTorchJob", map[string]string{"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "job-master-0",
			"MASTER_PORT": "23456", "KUBERNETES_SERVICE_HOST": "10.0.0.1", envToken: "s"},
			Place{Launcher: "PyTorchJob", Rank: 1, Size: 3, Address: "job-master-0:23456", Token: "s"}, true, ""},
		{"our own", map[string]string{envRank: "1", envSize: "2", envAddress: "127.0.0.1:5", envToken: "s"},
			Place{Launcher: "gyre", Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, Address: "127.0.0.1:5", Token: "s"},
			true, ""},
		{"beyond", map[string]string{"RANK": "4", "WORLD_SIZE": "4"}, Place{}, false, "RANK=4 but WORLD_SIZE=4"},
		{"no number", map[string]string{"OMPI_COMM_WORLD_RANK": "x", "OMPI_COMM_WORLD_SIZE": "4"}, Place{}, false,
			`OMPI_COMM_WORLD_RANK is "x"`},
	} {
		got, many, err := recognise(func(name string) string { return x.env[name] })
		if got != x.want || many != x.many || (err == nil) != (x.err == "") || err != nil &&
			!strings.Contains(err.Error(), x.err) {
			t.Errorf("%s: %+v, %v, %v", x.name, got, many, err)
		}
	}
}
