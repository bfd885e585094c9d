package main

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guest is the state of init.
type guest struct {
	bootID    string
	identity  *identity
	files     *workspace
	procs     *processes
	sweeper   *sweeper
	fds       *budget
	lingering lingering

	starting   chan struct{} // a place for every start in flight
	startBytes atomic.Int64
	lasting    atomic.Int32
	serving    chan struct{} // a place for every connection

	mu       sync.Mutex
	commands map[*command]struct{} // every command whose subtree may be alive
}

const (
	maxConnections = 16
	firstByteTime  = 10 * time.Second
	memoryLimit    = 16 << 20
	spareThreads   = 20
	spareTime      = 20 * time.Millisecond
)

func newGuest(o options) (*guest, error) {
	var random [16 + 4]byte
	_, _ = rand.Read(random[:]) // never fails
	g := &guest{
		bootID:   hex.EncodeToString(random[:16]),
		starting: make(chan struct{}, maxStarting),
		serving:  make(chan struct{}, maxConnections),
		commands: map[*command]struct{}{},
	}
	salt := uint64(0)
	if os.Getpid() != 1 { // others may share the process namespace
		salt = uint64(binary.BigEndian.Uint32(random[16:]) >> 12)
	}
	var err error
	if g.identity, err = newIdentity(o.uid, o.gid); err != nil {
		return nil, fmt.Errorf("become user %d: %w", o.uid, err)
	}
	g.identity.do(func() { g.files, err = newWorkspace(o.workdir) })
	if err != nil {
		return nil, fmt.Errorf("workdir %s: %w", o.workdir, err)
	}
	if g.procs, err = newProcesses(salt); err != nil {
		return nil, err
	}
	if g.fds, err = newBudget(); err != nil {
		return nil, err
	}
	g.sweeper = newSweeper(g.procs, o.uid >= 0)
	g.procs.reapedSome = g.sweeper.noteDeaths
	return g, nil
}

func (g *guest) register(k *command) {
	g.mu.Lock()
	g.commands[k] = struct{}{}
	g.mu.Unlock()
}

func (g *guest) unregister(k *command) {
	g.mu.Lock()
	delete(g.commands, k)
	g.mu.Unlock()
}

// stopAll ends the subtrees of all commands and whatever left its subtree; done gets the number of commands that were running.
func (g *guest) stopAll(done func(count int)) {
	var children []*child
	count := 0
	g.procs.spawning.Lock() // what is not forked now will see that it was stopped
	g.mu.Lock()
	for k := range g.commands {
		if k.pty || k.lasting { // terminals are not what somebody waits for
			continue
		}
		k.mu.Lock()
		if !k.child.reaped.Load() {
			k.stopped = true
			count++
		}
		k.mu.Unlock()
		if k.child.tag != 0 {
			children = append(children, k.child)
		}
	}
	g.mu.Unlock()
	g.procs.spawning.Unlock()
	g.sweeper.kill(children, true, func(int, int, int) { done(count) })
}

func runInit(o options) error {
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(memoryLimit)
	runtime.GOMAXPROCS(min(2, runtime.NumCPU()))
	if !o.ownPids {
		go makeThreads()
	}
	if err := protect(); err != nil {
		return err
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	syscall.Umask(umask)
	var stdio *conn
	var in, out *os.File
	if o.stdio {
		var err error
		if in, out, err = takeStdio(); err != nil {
			return fmt.Errorf("stdio: %w", err)
		}
	}
	g, err := newGuest(o)
	if err != nil {
		return err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: o.socket, Net: "unix"})
	if err != nil {
		return err
	}
	go g.procs.reap()
	go g.sweeper.run()
	go g.exitOn(term)
	if o.stdio {
		g.serving <- struct{}{}
		stdio = newConn(g, in, out, func() { in.Close(); out.Close() })
		go func() {
			defer func() { <-g.serving }()
			stdio.serve()
		}()
	}
	return g.listen(listener)
}

// makeThreads makes Go start threads now, which it keeps. Where init shares a limit of processes with the commands, they may use up
// what is left of it, and a Go program that needs a thread and gets none crashes. Under gVisor that costs a start 10 ms and more.
func makeThreads() {
	pause := unix.NsecToTimespec(spareTime.Nanoseconds())
	for range spareThreads {
		go func() { _ = unix.Nanosleep(&pause, nil) }() // each holds a thread while it sleeps; cut short, it makes one less
	}
}

// protect makes init hard to hurt by what runs beside it with the same uid.
func protect() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl(PR_SET_DUMPABLE)", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl(PR_SET_CHILD_SUBREAPER)", err)
	}
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil && err != unix.ENOSYS {
		return os.NewSyscallError("close_range", err) // what was inherited is no command's business
	}
	// Handled, not ignored: commands would inherit that. Nobody reads the channel.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGABRT)
	return os.NewSyscallError("rt_sigaction", ignoreSentFaults())
}

// exitOn: a sandbox that is asked to end does. Not with 0: a node that evicts a pod would count it as done, and forget to say why.
func (g *guest) exitOn(term <-chan os.Signal) {
	<-term
	g.stopAll(func(int) { os.Exit(128 + int(syscall.SIGTERM)) })
}

// takeStdio moves fds 0 and 1 away and puts /dev/null there.
func takeStdio() (in, out *os.File, err error) {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	defer unix.Close(null)
	var files [2]*os.File
	for fd := range files {
		moved, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, nil, err
		}
		if err := unix.Dup3(null, fd, 0); err != nil {
			return nil, nil, err
		}
		if files[fd], err = pollable(moved); err != nil {
			return nil, nil, err
		}
	}
	return files[0], files[1], nil
}

// pollable makes reads and writes of an fd end when the file is closed.
func pollable(fd int) (*os.File, error) {
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "connection"), nil
}

func (g *guest) listen(l *net.UnixListener) error {
	pending := make(chan struct{}, maxConnections)
	for {
		s, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil { // out of fds: some will be free again
			time.Sleep(50 * time.Millisecond)
			continue
		}
		select {
		case pending <- struct{}{}:
			go func() {
				g.welcome(s, pending)
				s.Close()
			}()
		default:
			s.Close()
		}
	}
}

// welcome checks who connected, takes the fds, and serves them. The place in pending is given back when that is known.
func (g *guest) welcome(s *net.UnixConn, pending <-chan struct{}) {
	in, out, err := accept(s)
	<-pending
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest: refused a connection:", err)
		return
	}
	closer := func() { in.Close(); out.Close() }
	select {
	case g.serving <- struct{}{}:
		defer func() { <-g.serving }()
	default:
		closer()
		return
	}
	if _, err := s.Write([]byte{passByte}); err != nil {
		fmt.Fprintln(os.Stderr, "guest: connect has gone:", err)
	}
	input := &input{File: in}
	go func() {
		_, _ = s.Read(make([]byte, 1)) // until connect has gone
		input.distrust()
	}()
	newConn(g, input, out, closer).serve()
}
