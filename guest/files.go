package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// status is what STAT, READ and WRITE answer.
type status struct {
	mode  uint32
	size  uint64
	mtime uint64 // ns
}

func statusOf(st *unix.Stat_t) status {
	return status{mode: st.Mode, size: uint64(st.Size), mtime: uint64(st.Mtim.Nano())}
}

func (s status) encode(e encoder) encoder { return e.u32(s.mode).u64(s.size).u64(s.mtime) }

func (s status) text() string { return string(s.encode(nil)) }

func fileType(st *unix.Stat_t) uint32 { return st.Mode & unix.S_IFMT }

// All methods of workspace must run under identity.do.

func (w *workspace) stat(p string) (status, error) {
	name, err := w.name(p)
	if err != nil {
		return status{}, err
	}
	fd, _, err := w.open(name, 0)
	if err != nil {
		return status{}, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return status{}, err
	}
	return statusOf(&st), nil
}

// openDir opens a directory for listing.
func (w *workspace) openDir(p string) (*os.File, error) {
	name, err := w.name(p)
	if err != nil {
		return nil, err
	}
	fd, _, err := w.open(name, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	dir, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(dir), "directory"), nil
}

const listBatch = 256

// entry is one item of a listing.
type entry struct {
	name string
	status
}

// readEntries returns the next entries, without following links, and io.EOF after the last. What vanishes meanwhile and the
// temporaries of WRITE are left out.
func readEntries(dir *os.File) ([]entry, error) {
	names, err := dir.Readdirnames(listBatch)
	entries := make([]entry, 0, len(names))
	for _, name := range names {
		if isTemporary(name) {
			continue
		}
		var st unix.Stat_t
		if unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			entries = append(entries, entry{name, statusOf(&st)})
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = errnoOf(err)
	}
	return entries, err
}

// openRead opens a regular file. The file is looked at before it is opened, so that no FIFO or device ever is.
func (w *workspace) openRead(p string) (int, status, error) {
	name, err := w.name(p)
	if err != nil {
		return -1, status{}, err
	}
	path, _, err := w.open(name, 0)
	if err != nil {
		return -1, status{}, err
	}
	defer unix.Close(path)
	if _, err := statRegular(path); err != nil { // to open something else may have effects
		return -1, status{}, err
	}
	fd, err := unix.Open(procFD(path), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, status{}, err
	}
	// gVisor opens what has taken the file's name meanwhile.
	st, err := statRegular(fd)
	if err != nil {
		unix.Close(fd)
		return -1, status{}, err
	}
	return fd, st, nil
}

func statRegular(fd int) (status, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return status{}, err
	}
	switch fileType(&st) {
	case unix.S_IFREG:
		return statusOf(&st), nil
	case unix.S_IFDIR:
		return status{}, unix.EISDIR
	}
	return status{}, errNotRegular
}

// errnoOf finds the errno in a wrapped error, or returns the error itself.
func errnoOf(err error) error {
	var e unix.Errno
	if errors.As(err, &e) {
		return e
	}
	return err
}

const (
	temporaryPrefix = ".sandboxhub-tmp-"
	temporaryDigits = 32
)

// isTemporary tells the names of WRITE's temporaries; a crash can leave one behind.
func isTemporary(name string) bool {
	return len(name) == len(temporaryPrefix)+temporaryDigits && strings.HasPrefix(name, temporaryPrefix)
}

func temporaryName() string {
	var random [temporaryDigits / 2]byte
	_, _ = rand.Read(random[:]) // never fails
	return temporaryPrefix + hex.EncodeToString(random[:])
}
