package ranks

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Place is where a process stands among those of its run.
type Place struct {
	Launcher             string // who started the processes: gyre, torchrun, mpirun, srun, PyTorchJob, environment
	Rank, Size           int    // of all
	LocalRank, LocalSize int    // of those on this machine; the size is 0 where nobody tells
	Job                  string // tells this launch from others
	Address              string // of the rendezvous, where the environment names it
	Token                string
	AgentStore           string // address of torchrun's own store, through which ours is found
}

// String says what was recognised.
func (p Place) String() string {
	local := ""
	if p.LocalSize > 0 {
		local = fmt.Sprintf(", %d on this machine", p.LocalSize)
	}
	return fmt.Sprintf("rank %d of %d (%s%s)", p.Rank, p.Size, p.Launcher, local)
}

// Variables that Gyre's own launcher sets for its processes. Address and token may also be given under other
// launchers, where no common folder and no store of the launcher's can carry them.
const (
	envRank    = "GYRE_RANK"
	envSize    = "GYRE_RANKS"
	envAddress = "GYRE_RENDEZVOUS"
	envToken   = "GYRE_RENDEZVOUS_TOKEN"
)

// launcher is one way of starting many processes, by the variables that it sets.
type launcher struct {
	name, rank, size, localRank, localSize string
	job                                    []string // variables that together name the launch
}

// launchers are asked in this order: a launcher within another (torchrun in a job of Slurm) comes before it.
var launchers = []launcher{
	{"gyre", envRank, envSize, envRank, envSize, nil},
	{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", []string{"TORCHELASTIC_RUN_ID",
		"TORCHELASTIC_RESTART_COUNT"}},
	{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
		"OMPI_COMM_WORLD_LOCAL_SIZE",
		[]string{"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"}},
	{"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", []string{"HYDI_CONTROL_FD", "PMI_PORT"}},
	// Not SLURM_NTASKS: a batch script has that too, without being one of the tasks.
	{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE",
		[]string{"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}},
	{"environment", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", nil},
}

// Recognise reads a process's place from its environment. One process alone, however it was started, has none.
func Recognise() (place Place, many bool, err error) { return recognise(os.Getenv) }

func recognise(getenv func(string) string) (Place, bool, error) {
	for _, l := range launchers {
		if getenv(l.size) == "" || getenv(l.rank) == "" || l.name == "torchrun" && getenv("TORCHELASTIC_RUN_ID") == "" {
			continue
		}
		p := Place{Launcher: l.name, Address: getenv(envAddress), Token: getenv(envToken)}
		var err error
		number := func(name string) int {
			text := getenv(name)
			if text == "" {
				return 0
			}
			n, e := strconv.Atoi(text)
			if e != nil || n < 0 {
				err = fmt.Errorf("%s is %q in the environment that %s made, expected a number: start every rank with "+
					"its own, or unset it for one process", name, text, l.name)
			}
			return n
		}
		p.Rank, p.Size, p.LocalRank = number(l.rank), number(l.size), number(l.localRank)
		if l.name == "srun" { // "2(x3),1": tasks on each node
			p.LocalSize, _ = strconv.Atoi(strings.FieldsFunc(getenv(l.localSize)+",",
				func(r rune) bool { return r == '(' || r == ',' })[0])
		} else {
			p.LocalSize = number(l.localSize)
		}
		if err == nil && p.Size > 0 && p.Rank >= p.Size {
			err = fmt.Errorf("%s=%d but %s=%d (%s): ranks count from 0", l.rank, p.Rank, l.size, p.Size, l.name)
		}
		if err != nil || p.Size < 2 {
			return Place{}, false, err
		}
		var job []string
		for _, name := range l.job {
			if v := getenv(name); v != "" {
				job = append(job, v)
			}
		}
		p.Job = strings.Join(job, ".")
		master := net.JoinHostPort(getenv("MASTER_ADDR"), getenv("MASTER_PORT"))
		switch {
		case l.name == "torchrun" && strings.EqualFold(getenv("TORCHELASTIC_USE_AGENT_STORE"), "true"):
			p.AgentStore = master
		case p.Address == "" && (l.name == "environment" || l.name == "torchrun") && getenv("MASTER_ADDR") != "":
			p.Address = master
		}
		if l.name == "environment" && getenv("KUBERNETES_SERVICE_HOST") != "" {
			p.Launcher = "PyTorchJob"
		}
		return p, true, nil
	}
	return Place{}, false, nil
}

// OneMachine reports whether all ranks are on this machine, as far as anybody tells.
func (p Place) OneMachine() bool { return p.LocalSize == p.Size }

// Threads is how many kernel threads this process should take of a machine's cores, 0 where nobody tells how many
// share it.
func (p Place) Threads() int {
	if n, err := strconv.Atoi(os.Getenv("SLURM_CPUS_PER_TASK")); err == nil && p.Launcher == "srun" {
		return n
	}
	if p.LocalSize == 0 {
		return 0
	}
	return max(1, runtime.NumCPU()/p.LocalSize)
}
