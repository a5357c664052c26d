// Package ranks makes several processes one run: it finds out who a process is, brings the processes together, and ends all of them when one
// of them fails.
//
//	environment.go  who am I: torchrun, mpirun, srun, a PyTorchJob, `gyre … --ranks N`, or one process alone
//	wire.go         what goes over a connection: proof of the token, then frames
//	server.go       the rendezvous: admits ranks, keeps a store of keys, listens to heartbeats
//	client.go       a rank's connection to it, which is also the store that process groups are opened with
//	meeting.go      how the server's address and token reach the other ranks
//	world.go        the run as a rank sees it: its place, its process group, the failure of another rank
//	launch.go       N processes on this machine, watched, restarted if asked
//
// Nothing is believed that comes from a connection before it has proved that it knows the run's token, and little is kept of it: strangers neither
// join nor stop a run. The data between ranks goes through package torch's process group, not through here.
package ranks
