package main

import (
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// budget counts file descriptors, so that work of clients never takes those that kill and connect need.
type budget struct{ left atomic.Int64 }

const (
	spareFDs     = 256 // for starts in flight, connections, scans
	operationFDs = 3   // what a file operation holds at most
)

func newBudget() (*budget, error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return nil, err
	}
	b := &budget{}
	limit := int64(min(l.Cur, 1<<20))
	b.left.Store(max(limit-spareFDs, limit/4))
	return b, nil
}

func (b *budget) take(n int) error {
	if b.left.Add(-int64(n)) < 0 {
		b.put(n)
		return syscall.EMFILE
	}
	return nil
}

func (b *budget) put(n int) { b.left.Add(int64(n)) }
