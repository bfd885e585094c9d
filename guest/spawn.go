package main

import (
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// child is the main process of a command and the root of its subtree.
type child struct {
	tag    uint64       // set before it is forked
	pid    atomic.Int64 // 0 until started
	reaped atomic.Bool  // set before the pid can be used again
	status syscall.WaitStatus
	done   chan struct{} // closed once status is valid
}

// processes starts and reaps. Init waits for every process, so os/exec cannot be used here.
type processes struct {
	spawning sync.Mutex // {lower the tag, fork}
	lowest   atomic.Uint64

	mu       sync.Mutex
	children map[int]*child
	starting int
	early    map[int]syscall.WaitStatus // reaped before spawn could say whose they are

	reapedSome func() // called after every batch of deaths
}

// firstTag is far above any size of memory, and far below infinity.
const firstTag = uint64(1) << 50

// newProcesses needs salt < 2^20 when another guest may run in the same process namespace (salt 0 otherwise).
func newProcesses(salt uint64) (*processes, error) {
	p := &processes{children: map[int]*child{}, early: map[int]syscall.WaitStatus{}, reapedSome: func() {}}
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_RSS, &l); err != nil {
		return nil, os.NewSyscallError("getrlimit", err)
	}
	p.lowest.Store(min(l.Max, firstTag) - salt<<24)
	return p, nil
}

func newChild() *child { return &child{done: make(chan struct{})} }

// spawn starts the child. Its hard RLIMIT_RSS, which nothing else uses, is inherited by all that it ever starts, and can
// be lowered but not raised. mayStart is called between tag and fork; an error of its ends the attempt.
func (p *processes) spawn(c *child, path string, argv []string, attr *syscall.ProcAttr, mayStart func() error) error {
	p.spawning.Lock()
	defer p.spawning.Unlock()
	c.tag = p.lowest.Add(^uint64(0))
	if err := mayStart(); err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_RSS, &unix.Rlimit{Cur: c.tag, Max: c.tag}); err != nil {
		return err
	}
	p.mu.Lock()
	p.starting++
	p.mu.Unlock()
	pid, err := syscall.ForkExec(path, argv, attr)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting--
	if err == nil {
		c.pid.Store(int64(pid))
		if status, ok := p.early[pid]; ok {
			p.finish(c, status)
		} else {
			p.children[pid] = c
		}
	}
	if p.starting == 0 {
		clear(p.early)
	}
	return err
}

func (p *processes) finish(c *child, status syscall.WaitStatus) {
	c.reaped.Store(true)
	c.status = status
	close(c.done)
}

// signalMain signals the main process unless it has been reaped, and says whether it did.
func (p *processes) signalMain(c *child, sig syscall.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return c.pid.Load() != 0 && !c.reaped.Load() && syscall.Kill(int(c.pid.Load()), sig) == nil
}

// reap waits for every process that dies, its own and adopted ones.
func (p *processes) reap() {
	deaths := make(chan os.Signal, 1)
	signal.Notify(deaths, syscall.SIGCHLD)
	for {
		some := false
		for p.reapOne() {
			some = true
		}
		if some {
			p.reapedSome()
		}
		<-deaths
	}
}

func (p *processes) reapOne() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var status syscall.WaitStatus
	var pid int
	err := error(syscall.EINTR)
	for err == syscall.EINTR {
		pid, err = syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
	}
	if err != nil || pid <= 0 {
		return false
	}
	if c := p.children[pid]; c != nil {
		delete(p.children, pid)
		p.finish(c, status)
	} else if p.starting > 0 {
		p.early[pid] = status
	}
	return true
}
