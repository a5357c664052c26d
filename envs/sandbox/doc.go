// Package sandbox runs Python programs that nobody has looked at.
//
//	s, err := sandbox.New(ctx, sandbox.Config{"python3", 3, 512, sandbox.Full})
//	outcomes, err := s.Run(ctx, sandbox.Job{Program: "print(int(input()) + 1)", Calls: []sandbox.Call{{Stdin: "41"}}})
//	fmt.Println(outcomes[0].Stdout) // 42
//
// A job is one process, the runner (runner.py), which forks a child per call. The child may compute, use threads,
// read the Python installation and write into an empty folder that is removed afterwards. Everything else is closed
// to it:
//
//	files        Landlock: nothing outside the Python installation, /usr and the like can be read, nothing but the folder written
//	network      seccomp: a program that asks for a socket is killed
//	processes    seccomp: one that forks, executes, traces or signals is killed
//	privileges   none can be gained, capabilities are dropped, owners and modes of files cannot be changed
//	time         seconds of processor time and of the clock; memory, output, files and their size are limited too
//
// None of it needs privileges or services, and all of it works inside the usual containers; it needs Linux 5.13
// with Landlock. New proves with a program that tries to break out that the walls stand, and fails where they do
// not. Isolation "limits" does without walls, for programs that are trusted.
//
// What a program prints or returns is untrusted text. Expected answers never enter the process, so no program can
// look them up: callers compare outside.
package sandbox
