// Package tasks plays tasks in folders, in the layouts of Harbor and of Terminal-Bench: an agent works in a shell of
// its own, and then the task's tests judge what it has left.
//
//	task.toml        limits (Harbor)            task.yaml       instruction and limits (Terminal-Bench)
//	instruction.md                              Dockerfile, and the files that it copies
//	environment/     Dockerfile and files       run-tests.sh, tests/
//	tests/test.sh    writes the reward          solution.sh
//	solution/solve.sh
//
// Each episode has a session of the sandbox with a fresh copy of the task's files and the tools shell and file. A reply
// without a call ends the work, and so do max_calls calls or the task's time for agents. What still runs is ended
// before the tests come in, see [sandbox.Session.Test]. No image is built: a Dockerfile may name a plain base and copy
// files, and programs are those of this machine. What needs more is refused by name.
//
// Without a folder the tasks are those of families, which make one per seed in Harbor's layout.
package tasks
