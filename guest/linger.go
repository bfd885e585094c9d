package main

import (
	"errors"
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

// poll says whether one of the events is there, or comes in time when told to linger. At once when too many threads do.
func (l *lingering) poll(files []unix.PollFd, linger bool) bool {
	wait := time.Duration(0)
	if linger && l.enter() {
		defer l.leave()
		wait = lingerTime
	}
	n, err := unix.Poll(files, int(wait.Milliseconds()))
	return err == nil && n > 0
}

// write writes all of b to a file that does not block.
func (l *lingering) write(file syscall.RawConn, b []byte) error {
	var failed error
	err := file.Write(func(fd uintptr) bool {
		lingered := false
		for len(b) > 0 {
			n, err := unix.Write(int(fd), b)
			switch {
			case n > 0:
				b, lingered = b[n:], false
			case err == unix.EAGAIN:
				// Twice in a row: a full terminal says that there is room, and takes nothing.
				if lingered || !l.poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, true) {
					return false // until Go's poller finds room
				}
				lingered = true
			case err != unix.EINTR:
				failed = err
				return true
			}
		}
		return true
	})
	return errors.Join(err, failed)
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
			s.lingering.poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, true)
		})
	}
	n, err := s.in.Read(p)
	s.flowing = n >= firstPipe/2
	return n, err
}
