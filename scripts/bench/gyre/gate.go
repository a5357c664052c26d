package gyre

import (
	"io"
	"regexp"
	"sync"
)

// gate is the console of a run that is held after every step: writing a step's line waits until the gate opens again.
type gate struct {
	log    io.Writer
	turn   chan struct{} // a value lets one step through, closing it all
	closed chan string   // the line of the step that has ended
	free   sync.Once
}

var stepLine = regexp.MustCompile(`^step +\d+/\d+ `)

func newGate(log io.Writer) *gate {
	return &gate{log: log, turn: make(chan struct{}, 1), closed: make(chan string, 1)}
}

func (g *gate) Write(text []byte) (int, error) {
	if !stepLine.Match(text) {
		return g.log.Write(text)
	}
	g.closed <- string(text)
	g.waitForTurn()
	return len(text), nil
}

func (g *gate) waitForTurn() { <-g.turn }

// open lets one step through.
func (g *gate) open() { g.turn <- struct{}{} }

// release lets everything through, for good.
func (g *gate) release() { g.free.Do(func() { close(g.turn) }) }
