//go:build amd64 || arm64

package main

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// goFault is the address of the runtime's own signal handler.
var goFault uintptr

// faultHandlerPC returns the address of a handler, in assembly, that returns at once if the signal was sent by a process
// (si_code <= 0) and continues in goFault otherwise.
func faultHandlerPC() uintptr

type sigaction struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

// ignoreSentFaults keeps a `kill -SEGV` from ending the guest, as the kernel would for a first process without handlers.
// Real faults still reach the Go runtime. Ignoring these signals would not do: commands would inherit it.
func ignoreSentFaults() error {
	for _, sig := range []syscall.Signal{
		unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGTRAP, unix.SIGSYS, unix.SIGSTKFLT,
	} {
		var sa sigaction
		if err := rtSigaction(sig, nil, &sa); err != nil {
			return err
		}
		goFault = sa.handler
		sa.handler = faultHandlerPC()
		if err := rtSigaction(sig, &sa, nil); err != nil {
			return err
		}
	}
	return nil
}

func rtSigaction(sig syscall.Signal, set, old *sigaction) error {
	_, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(set)),
		uintptr(unsafe.Pointer(old)), unsafe.Sizeof(set.mask), 0, 0)
	if e != 0 {
		return e
	}
	return nil
}
