// Package ranks makes several processes one run: it finds out who a process is, brings the processes together, and
// ends all of them when one of them fails.
//
//	environment.go  who am I: torchrun, mpirun, srun, a PyTorchJob, `gyre … --ranks N`, or one process alone
//	rendezvous.go   the store in which ranks find each other: c10d's FileStore on one machine, its TCPStore between machines
//	membership.go   what a rank says of itself there, and what it hears of the others: identity, signs of life, the failure of the run
//	world.go        the run as a rank sees it: its place, its process group, the failure of another rank
//	collectives.go  what ranks tell each other over the process group
//	launch.go       N processes on this machine, watched, restarted if asked
//	cause.go        why a process ended
//
// A failure is noticed by whoever meets it first (the rank itself, a rank in a collective with it, the rank that
// misses its signs of life, the launcher) and written to the store, where the first report counts and every rank looks
// twice a second.
package ranks
