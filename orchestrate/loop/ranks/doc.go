// Package ranks makes several processes one run: it finds out who a process is, brings the processes together, and
// ends all of them when one of them fails.
//
//	environment.go  who am I: torchrun, mpirun, srun, a PyTorchJob, `gyre … --ranks N`, or one process alone
//	rendezvous.go   the store in which ranks find each other: c10d's FileStore on one machine, TCPStore between machines
//	membership.go   identity and signs of life of the ranks, and the failure of the run, in that store
//	world.go        the run as a rank sees it: its place, its process group, the failure of another rank
//	collectives.go  what ranks tell each other over the process group
//	launch.go       N processes on this machine, watched, restarted if asked
//	cause.go        why a process ended
//
// A failure is written to the store by the rank that fails, by the launcher that sees a process end, or by the rank
// that misses another's signs of life. The first report counts, and every rank looks for it twice a second.
package ranks
