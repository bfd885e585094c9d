package main

import (
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxSide    = 1000 // rows or columns
	maxLasting = 64   // lasting commands alive

	// A shell's end hangs its terminal up, on Linux; the last output is then on its way, in no buffer that can be asked.
	hangupTime = 200 * time.Millisecond
)

// openPty makes a terminal of the sandbox's user: whoever opens it owns it. The master comes twice, since its two
// directions end apart from each other.
func (k *command) openPty() (*pipes, error) {
	p := &pipes{}
	var fd, slave int
	var err error
	k.c.g.identity.do(func() { fd, slave, err = ptyPair(k.spec.rows, k.spec.cols) })
	if err != nil {
		return nil, err
	}
	again, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		unix.Close(fd)
		unix.Close(slave)
		return nil, err
	}
	p.stdout, p.stdin = os.NewFile(uintptr(fd), "ptmx"), os.NewFile(uintptr(again), "ptmx")
	terminal := os.NewFile(uintptr(slave), "pts")
	p.children = [3]*os.File{terminal, terminal, terminal}
	return p, nil
}

// ptyPair runs as the sandbox's user. The master does not block, so that Go polls it.
func ptyPair(rows, cols uint16) (master, slave int, err error) {
	master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, -1, err
	}
	defer func() {
		if err != nil {
			unix.Close(master)
		}
	}()
	if err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return -1, -1, err
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return -1, -1, err
	}
	if err = setSize(master, rows, cols); err != nil {
		return -1, -1, err
	}
	slave, err = unix.Open("/dev/pts/"+strconv.Itoa(n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	return master, slave, err
}

func setSize(fd int, rows, cols uint16) error {
	return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: side(rows), Col: side(cols)})
}

func side(n uint16) uint16 { return max(1, min(n, maxSide)) }

func (k *command) resize(rows, cols uint16) error {
	if !k.pty {
		return refused("RESIZE of a command without a terminal")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rows, k.cols = rows, cols
	k.applySize()
	return nil
}

// applySize is called under mu.
func (k *command) applySize() {
	if !k.pty || k.stdin == nil {
		return
	}
	_ = k.stdin.control(func(fd uintptr) { _ = setSize(int(fd), k.rows, k.cols) }) // fails only when it has ended
}

// attributes makes the terminal, if there is one, the controlling one of the new session.
func (k *command) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Setctty: k.pty, Credential: k.c.g.identity.credential()}
}

// openNull is for commands that outlive whoever could read what they say.
func openNull() (*pipes, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return &pipes{children: [3]*os.File{null, null, null}}, nil
}
