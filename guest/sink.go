package main

import (
	"os"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// sink is a connection's output. Small writes and sockets leave waiting to lingering. A pipe takes a large one piece by piece, as its
// reader makes room: there the thread waits in write itself, with half the system calls of poll
// and write, each of which is dear under gVisor.
type sink struct {
	raw       syscall.RawConn
	lingering *lingering
	pipe      bool

	mu     sync.Mutex
	thread int // that waits in write; 0 for none
	closed bool
}

const largeWrite = 128 << 10

func newSink(f *os.File, l *lingering) *sink {
	s := &sink{raw: rawConn(f), lingering: l}
	var st unix.Stat_t
	_ = s.raw.Control(func(fd uintptr) { s.pipe = unix.Fstat(int(fd), &st) == nil && fileType(&st) == unix.S_IFIFO })
	return s
}

// write writes all of b.
func (s *sink) write(b []byte) error {
	if s.pipe && len(b) >= largeWrite && s.lingering.enter() {
		n := 0
		err := s.raw.Write(func(fd uintptr) bool { n = s.writeBlocking(int(fd), b); return true })
		s.lingering.leave()
		if err != nil {
			return err
		}
		b = b[n:]
	}
	if len(b) == 0 {
		return nil
	}
	return s.lingering.write(s.raw, b)
}

// writeBlocking says how much it wrote: less than all of b at an error, or once the sink was closed.
func (s *sink) writeBlocking(fd int, b []byte) (done int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if !s.setBlocking(fd, unix.Gettid()) {
		return 0
	}
	defer s.setBlocking(fd, 0)
	for done < len(b) {
		n, err := unix.Write(fd, b[done:])
		if n > 0 {
			done += n
		} else if err != unix.EINTR {
			break
		}
	}
	return done
}

// setBlocking is for a thread that will wait, or 0. It fails when the sink was closed.
func (s *sink) setBlocking(fd, thread int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	flags := unix.O_NONBLOCK
	if thread != 0 {
		flags = 0
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags)
	s.thread = thread
	return err == nil
}

// close lets nobody wait any more: a write that is cut short by the signal, or begins after it, does not block.
func (s *sink) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.thread != 0 {
		_ = s.raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETFL, unix.O_NONBLOCK) })
		_ = unix.Tgkill(os.Getpid(), s.thread, unix.SIGURG) // Go's runtime handles it, and makes nothing of it
	}
}
