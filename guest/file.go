package main

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// file does not block. One goroutine at a time reads or writes it; any may ask for its state, or close it.
//
// Go's poller watches it but in a flow: the poller wakes a thread at every change of what it watches, also when nobody waits for one, and
// under gVisor that takes longer than to move what came.
type file struct {
	lingering *lingering

	mu      sync.RWMutex // held while the descriptor is in use
	f       *os.File
	fd      int  // in a flow
	flowing bool // changed by who reads or writes
	closed  bool
}

func newFile(f *os.File, l *lingering) *file { return &file{f: f, lingering: l} }

func rawConn(f syscall.Conn) syscall.RawConn {
	raw, err := f.SyscallConn()
	if err != nil {
		panic(err) // only for a nil file
	}
	return raw
}

// control fails once it is closed.
func (f *file) control(do func(fd uintptr)) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	switch {
	case f.closed:
		return os.ErrClosed
	case f.flowing:
		do(uintptr(f.fd))
		return nil
	}
	return rawConn(f.f).Control(do)
}

// close waits for a use that lingers.
func (f *file) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
	case f.flowing:
		unix.Close(f.fd)
	default:
		f.f.Close()
	}
	f.closed = true
}

// flow begins or ends a flow. It does not begin where there is no descriptor to spare.
func (f *file) flow(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.flowing == on || f.closed {
		return
	}
	if on {
		again := -1
		_ = rawConn(f.f).Control(func(fd uintptr) { again, _ = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3) })
		if again < 0 {
			return
		}
		f.f.Close()
		f.fd = again
	} else {
		f.f = os.NewFile(uintptr(f.fd), "flow")
	}
	f.flowing = on
}

// until calls try until it returns true. Whoever waits for long waits through wait, by Go's poller.
func (f *file) until(wait func(syscall.RawConn, func(fd uintptr) bool) error, try func(fd uintptr) bool) error {
	if f.flowing {
		done := false
		if err := f.control(func(fd uintptr) { done = try(fd) }); err != nil || done {
			return err
		}
		f.flow(false)
	}
	f.mu.RLock()
	raw := rawConn(f.f)
	f.mu.RUnlock()
	return wait(raw, try)
}

// readable waits until there is something to read; false at the end of it.
func (f *file) readable() bool {
	data := false
	err := f.until(syscall.RawConn.Read, func(fd uintptr) bool {
		got := f.lingering.poll(fd, unix.POLLIN, f.flowing)
		data = got&unix.POLLIN != 0
		return got != 0
	})
	return err == nil && data
}

// read does not wait.
func (f *file) read(buf []byte) (n int, err error) {
	if failed := f.control(func(fd uintptr) { n, err = unix.Read(int(fd), buf) }); failed != nil {
		return 0, failed
	}
	return n, err
}

// write writes all of b.
func (f *file) write(b []byte) error {
	var failed error
	lingered := false
	err := f.until(syscall.RawConn.Write, func(fd uintptr) bool {
		for len(b) > 0 {
			n, err := unix.Write(int(fd), b)
			switch {
			case n > 0:
				b, lingered = b[n:], false
			case err == unix.EAGAIN:
				// Twice in a row: a full terminal says that there is room, and takes nothing.
				if lingered || f.lingering.poll(fd, unix.POLLOUT, true) == 0 {
					return false
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

// writeNow writes what goes without waiting, and says how much. What fails is left to write.
func (f *file) writeNow(b []byte) (n int) {
	_ = f.control(func(fd uintptr) { n, _ = unix.Write(int(fd), b) })
	return max(n, 0)
}

// pending says how many bytes there are to read.
func (f *file) pending() (n int) {
	_ = f.control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }) // fails if it is closed: then nothing is
	return n
}

// grow is for a pipe that was full. The kernel may refuse: all pipes of a user share a limit.
func (f *file) grow() {
	_ = f.control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, largePipe) })
}
