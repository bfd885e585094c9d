package main

import (
	"errors"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// sink is a connection's output. In a flow a pipe takes what is written piece by piece, as its reader makes room: there the thread waits in write
// itself, with half the system calls of poll and write, each of which is dear under gVisor.
type sink struct {
	*file
	pipe     bool
	blocking bool // only in a flow

	mu     sync.Mutex
	thread int // that waits in write; 0 for none
	closed bool
}

const largeWrite = 128 << 10

func newSink(f *os.File, l *lingering) *sink {
	s := &sink{file: newFile(f, l)}
	var st unix.Stat_t
	_ = s.control(func(fd uintptr) { s.pipe = unix.Fstat(int(fd), &st) == nil && fileType(&st) == unix.S_IFIFO })
	return s
}

// write writes all of b.
func (s *sink) write(b []byte) error {
	if len(b) >= largeWrite {
		s.flow(true)
	}
	if s.pipe && s.flowing && s.lingering.enter() {
		n, err := s.writeBlocking(b)
		s.lingering.leave()
		if err != nil || n == len(b) {
			return err
		}
		b = b[n:]
	}
	if err := s.block(false); err != nil {
		return err
	}
	return s.file.write(b)
}

// writeBlocking says how much it wrote: less than all of b at an error, which the next write meets too.
func (s *sink) writeBlocking(b []byte) (done int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := s.block(true); err != nil {
		return 0, err
	}
	if !s.waits(unix.Gettid()) {
		return 0, os.ErrClosed
	}
	defer s.waits(0)
	err = s.control(func(fd uintptr) {
		for done < len(b) {
			n, err := unix.Write(int(fd), b[done:])
			if n > 0 {
				done += n
			} else if err != unix.EINTR {
				break
			}
		}
	})
	return done, err
}

func (s *sink) block(on bool) error {
	if s.blocking == on {
		return nil
	}
	s.blocking = on
	var failed error
	err := s.control(func(fd uintptr) { failed = unix.SetNonblock(int(fd), !on) })
	return errors.Join(err, failed)
}

// waits notes which thread does. It is false once the sink was closed.
func (s *sink) waits(thread int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.thread = thread
	return !s.closed
}

// close lets nobody wait any more: a write that is cut short by the signal, or begins after it, does not block.
func (s *sink) close() {
	s.mu.Lock()
	s.closed = true
	if s.thread != 0 {
		_ = s.control(func(fd uintptr) { _ = unix.SetNonblock(int(fd), true) })
		_ = unix.Tgkill(os.Getpid(), s.thread, unix.SIGURG) // Go's runtime handles it, and makes nothing of it
	}
	s.mu.Unlock()
	s.file.close()
}
