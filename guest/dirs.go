package main

import (
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// makeDirs opens a directory by its absolute name and creates what is missing of it: the last part with mode, its parents with 0755.
func (w *workspace) makeDirs(name string, mode uint32) (int, string, error) {
	fd, real, err := w.open(name, unix.O_DIRECTORY)
	if err != unix.ENOENT {
		return fd, real, err
	}
	parts := components(name)
	dir, real, err := -1, "", error(nil)
	for i := range parts {
		prefix := "/" + strings.Join(parts[:i+1], "/")
		if !w.inside(prefix) && dir < 0 { // above the working directory: exists
			continue
		}
		next, nextReal, err := w.open(prefix, unix.O_DIRECTORY)
		if err == unix.ENOENT && dir >= 0 {
			m := uint32(0o755)
			if i == len(parts)-1 {
				m = mode & 0o7777
			}
			if err = unix.Mkdirat(dir, parts[i], m); err == nil || err == unix.EEXIST {
				next, nextReal, err = w.open(prefix, unix.O_DIRECTORY)
				if err == unix.ENOENT { // a symbolic link to nowhere
					err = unix.EEXIST
				}
			}
		}
		if dir >= 0 {
			unix.Close(dir)
		}
		if err != nil {
			return -1, "", err
		}
		dir, real = next, nextReal
	}
	if dir < 0 {
		return -1, "", unix.ENOENT
	}
	return dir, real, err
}

func (w *workspace) mkdir(p string, mode uint32) error {
	name, err := w.name(p)
	if err != nil {
		return err
	}
	fd, _, err := w.makeDirs(name, mode)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func (w *workspace) rename(from, to string) error {
	fromDir, _, fromBase, err := w.openParent(from)
	if err != nil {
		return err
	}
	defer unix.Close(fromDir)
	toDir, _, toBase, err := w.openParent(to)
	if err != nil {
		return err
	}
	defer unix.Close(toDir)
	return unix.Renameat(fromDir, fromBase, toDir, toBase)
}

// remove unlinks a file, or a directory: an empty one, or with all that is in it. cancelled is asked between entries.
func (w *workspace) remove(p string, recursive bool, cancelled func() bool) error {
	dir, real, base, err := w.openParent(p)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if real+"/"+base == w.dir {
		return unix.EBUSY
	}
	if err = unlinkAny(dir, base); !recursive || err != unix.ENOTEMPTY && err != unix.EEXIST {
		return err
	}
	if err := removeTree(dir, base, cancelled); err != nil {
		return err
	}
	if err := unix.Unlinkat(dir, base, unix.AT_REMOVEDIR); err != unix.ENOENT {
		return err
	}
	return nil
}

func unlinkAny(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == unix.EISDIR || err == unix.EPERM || err == unix.ENOTDIR {
		var st unix.Stat_t
		if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && fileType(&st) == unix.S_IFDIR {
			return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		}
	}
	return err
}

func openSubdir(dir int, name string) (*os.File, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "directory"), nil
}

const deepest = 64 // directories that are open at once

// removeTree empties a directory. What lies deeper than `deepest` is moved up to the top first, so that a tree of any depth
// needs few fds. Symbolic links are never followed.
func removeTree(parent int, name string, cancelled func() bool) error {
	top, err := openSubdir(parent, name)
	if err != nil {
		return err
	}
	defer top.Close()
	t := treeRemover{top: int(top.Fd()), cancelled: cancelled}
	return t.empty(top, 0)
}

type treeRemover struct {
	top       int
	cancelled func() bool
}

func (t *treeRemover) empty(dir *os.File, depth int) error {
	for {
		removed := 0
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return errnoOf(err)
		}
		for {
			names, err := dir.Readdirnames(listBatch)
			for _, name := range names {
				if t.cancelled() {
					return unix.ECANCELED
				}
				if err := t.removeOne(dir, name, depth); err != nil {
					return err
				}
				removed++
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return errnoOf(err)
			}
		}
		if removed == 0 {
			return nil
		}
	}
}

func (t *treeRemover) removeOne(dir *os.File, name string, depth int) error {
	fd := int(dir.Fd())
	err := unlinkAny(fd, name)
	if err == unix.ENOENT {
		return nil
	}
	if err != unix.ENOTEMPTY && err != unix.EEXIST {
		return err
	}
	if depth == deepest {
		return unix.Renameat(fd, name, t.top, temporaryName())
	}
	sub, err := openSubdir(fd, name)
	if err != nil {
		return err
	}
	defer sub.Close()
	if err := t.empty(sub, depth+1); err != nil {
		return err
	}
	if err := unix.Unlinkat(fd, name, unix.AT_REMOVEDIR); err != unix.ENOENT {
		return err
	}
	return nil
}
