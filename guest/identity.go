package main

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// identity runs file work as the sandbox's user.
type identity struct {
	uid, gid int // -1: the guest itself
	work     chan func()
}

const tenantThreads = 4

// newIdentity fails if the threads cannot become the user.
func newIdentity(uid, gid int) (*identity, error) {
	id := &identity{uid: uid, gid: gid}
	if uid < 0 {
		return id, nil
	}
	id.work = make(chan func())
	ready := make(chan error)
	for range tenantThreads {
		go id.thread(ready)
	}
	var failed error
	for range tenantThreads {
		if err := <-ready; err != nil {
			failed = err
		}
	}
	return id, failed
}

// thread is locked to an operating system thread for ever. Only the effective ids of that thread change, by raw system
// calls (those of package syscall change every thread). Its real and saved uid stay 0, so the user may neither signal nor trace it.
func (id *identity) thread(ready chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() { // the main thread, whose ids are the process's to others: it is held until another has been found
		found := make(chan error)
		go id.thread(found)
		ready <- <-found
		runtime.UnlockOSThread()
		return
	}
	const keep = ^uintptr(0)
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); e != 0 {
		ready <- e
		return
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, keep, uintptr(id.gid), keep); e != 0 {
		ready <- e
		return
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(id.uid), keep); e != 0 {
		ready <- e
		return
	}
	ready <- nil
	for f := range id.work {
		f()
	}
}

// do runs f as the user and waits for it. f must not start processes.
func (id *identity) do(f func()) {
	if id.work == nil {
		f()
		return
	}
	done := make(chan struct{})
	id.work <- func() {
		defer close(done)
		f()
	}
	<-done
}

func (id *identity) credential() *syscall.Credential {
	if id.uid < 0 {
		return nil
	}
	return &syscall.Credential{Uid: uint32(id.uid), Gid: uint32(id.gid)}
}
