package main

import (
	"io"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lingering is what threads do in the middle of a flow: they wait for the file itself, for a moment, instead of leaving it to Go's poller.
// That wakes several threads for every piece that moves, which under gVisor takes longer than to move it.
type lingering struct{ threads atomic.Int32 }

const (
	lingerTime   = 20 * time.Millisecond // closing a file waits for it
	lingerPlaces = 8                     // see makeThreads
)

// enter takes a place, if there is one; leave gives it back.
func (l *lingering) enter() bool {
	if l.threads.Add(1) > lingerPlaces {
		l.leave()
		return false
	}
	return true
}

func (l *lingering) leave() { l.threads.Add(-1) }

// poll returns those of the events that are there, or come in time when told to linger. None at once when too many threads do.
func (l *lingering) poll(fd uintptr, events int16, linger bool) int16 {
	wait := time.Duration(0)
	if linger && l.enter() {
		defer l.leave()
		wait = lingerTime
	}
	files := []unix.PollFd{{Fd: int32(fd), Events: events}}
	if n, err := unix.Poll(files, int(wait.Milliseconds())); err != nil || n == 0 {
		return 0
	}
	return files[0].Revents
}

// source is a connection's input.
type source struct {
	in        readable
	raw       syscall.RawConn
	lingering *lingering
	flowing   bool
}

// readable is a file, or what reads from one.
type readable interface {
	io.Reader
	syscall.Conn
}

func newSource(in readable, l *lingering) *source {
	return &source{in: in, raw: rawConn(in), lingering: l}
}

func (s *source) Read(p []byte) (int, error) {
	if s.flowing {
		_ = s.raw.Control(func(fd uintptr) { // fails if it is closed, like Read
			s.lingering.poll(fd, unix.POLLIN, true)
		})
	}
	n, err := s.in.Read(p)
	s.flowing = n >= firstPipe/2
	return n, err
}
