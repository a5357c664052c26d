//go:build linux && !amd64

package sandbox

var killedHere, deniedHere []uint32
