package main

import (
	"errors"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// workspace is the directory that file operations are confined to.
type workspace struct {
	dir  string // canonical
	asIs string // as it was named
	root int    // fd of /
	walk bool   // openat2 is missing
}

const maxLinks = 40

// refusal is an error with an EXIT kind of its own.
type refusal struct {
	kind byte
	text string
}

func (r refusal) Error() string { return r.text }

var (
	errOutside    = refusal{kindOutside, "outside the working directory"}
	errNotRegular = refusal{kindNotRegular, "not a regular file"}
)

func newWorkspace(dir string) (*workspace, error) {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	w := &workspace{dir: dir, asIs: dir, root: root}
	probe, err := openat2(root, ".", unix.O_PATH)
	switch err {
	case nil:
		unix.Close(probe)
	case unix.ENOSYS, unix.EPERM: // EPERM is what old seccomp profiles say of system calls that they do not know
		w.walk = true
	default:
		return nil, err
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	w.dir, err = realPath(fd)
	return w, err
}

// name checks a client's path and makes it absolute. It is not cleaned: `link/..` is not `.`.
func (w *workspace) name(p string) (string, error) {
	if hasNUL(p) {
		return "", unix.EINVAL
	}
	if len(p) >= unix.PathMax {
		return "", unix.ENAMETOOLONG
	}
	if p == w.asIs || strings.HasPrefix(p, w.asIs+"/") {
		return w.dir + p[len(w.asIs):], nil
	}
	if strings.HasPrefix(p, "/") {
		return p, nil
	}
	return w.dir + "/" + p, nil
}

func hasNUL(s string) bool { return strings.IndexByte(s, 0) >= 0 }

// inside says whether a canonical path is the working directory or beneath it.
func (w *workspace) inside(p string) bool {
	return p == w.dir || strings.HasPrefix(p, w.dir+"/")
}

// open resolves an absolute name from / and returns an O_PATH fd, and its canonical path, if that is inside. flags may add O_DIRECTORY.
func (w *workspace) open(name string, flags int) (int, string, error) {
	var fd int
	var err error
	if w.walk {
		fd, err = w.openWalk(name, flags|unix.O_PATH)
	} else {
		fd, err = openat2(w.root, relative(name), flags|unix.O_PATH)
	}
	if err != nil {
		// A name that is outside as it is written is called so, whether or not it exists.
		if !w.inside(path.Clean(name)) || err == unix.EXDEV {
			err = errOutside
		}
		return -1, "", err
	}
	real, err := realPath(fd)
	if err == nil && !w.inside(real) {
		err = errOutside
	}
	if err != nil {
		unix.Close(fd)
		return -1, "", err
	}
	return fd, real, nil
}

func relative(name string) string {
	if name = strings.TrimLeft(name, "/"); name == "" {
		return "."
	}
	return name
}

func openat2(dir int, name string, flags int) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for range 100 { // EAGAIN: something was renamed meanwhile
		fd, err := unix.Openat2(dir, name, &how)
		if err == unix.ELOOP { // too many links, or a magic one
			return fd, unix.ELOOP
		}
		if err != unix.EAGAIN && err != unix.EINTR {
			return fd, err
		}
	}
	return -1, unix.EAGAIN
}

// openWalk does what openat2 does, one component at a time.
func (w *workspace) openWalk(name string, flags int) (int, error) {
	root, err := unix.FcntlInt(uintptr(w.root), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return -1, err
	}
	stack := []int{root} // the directories on the way; the last is where we are
	defer func() {
		for _, fd := range stack {
			unix.Close(fd)
		}
	}()
	popTo := func(n int) {
		for len(stack) > n {
			unix.Close(stack[len(stack)-1])
			stack = stack[:len(stack)-1]
		}
	}
	rest := components(name)
	mustBeDir := flags&unix.O_DIRECTORY != 0 || strings.HasSuffix(name, "/")
	for links := 0; len(rest) > 0; {
		here := stack[len(stack)-1]
		next := rest[0]
		rest = rest[1:]
		if next == ".." {
			popTo(max(1, len(stack)-1))
			continue
		}
		wanted := unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
		fd, err := unix.Openat(here, next, wanted, 0)
		if err != nil {
			return -1, err
		}
		stack = append(stack, fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return -1, err
		}
		switch {
		case st.Mode&unix.S_IFMT == unix.S_IFLNK:
			if links++; links > maxLinks {
				return -1, unix.ELOOP
			}
			target, err := readLink(fd, "")
			if err != nil {
				return -1, err
			}
			popTo(len(stack) - 1)
			if strings.HasPrefix(target, "/") {
				popTo(1)
			}
			if strings.HasSuffix(target, "/") && len(rest) == 0 {
				mustBeDir = true
			}
			rest = append(components(target), rest...)
			if len(rest) > unix.PathMax {
				return -1, unix.ENAMETOOLONG
			}
		case st.Mode&unix.S_IFMT != unix.S_IFDIR && (len(rest) > 0 || mustBeDir):
			return -1, unix.ENOTDIR
		}
	}
	last := stack[len(stack)-1]
	stack = stack[:len(stack)-1]
	return last, nil
}

// components leaves out what does not move: empty ones and ".".
func components(name string) []string {
	parts := strings.Split(name, "/")
	kept := parts[:0]
	for _, p := range parts {
		if p != "" && p != "." {
			kept = append(kept, p)
		}
	}
	return kept
}

// readLink reads a symbolic link; name "" means the link that dir itself is.
func readLink(dir int, name string) (string, error) {
	buf := make([]byte, 2*unix.PathMax)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return "", err
	}
	if n == 0 || n == len(buf) {
		return "", unix.ENAMETOOLONG
	}
	return string(buf[:n]), nil
}

func procFD(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

func realPath(fd int) (string, error) {
	p, err := readLink(unix.AT_FDCWD, procFD(fd))
	if err == nil && !strings.HasPrefix(p, "/") {
		err = errors.New("no path")
	}
	return p, err
}

// openParent resolves all but the last component. The last is returned as it is, and is never empty, "." or "..".
func (w *workspace) openParent(p string) (dir int, real, base string, err error) {
	name, err := w.name(p)
	if err != nil {
		return -1, "", "", err
	}
	parent, base := splitLast(name)
	if base == "." || base == ".." || base == "" {
		return -1, "", "", unix.EINVAL
	}
	if dir, real, err = w.open(parent, unix.O_DIRECTORY); err != nil {
		// The working directory itself is not a name inside it.
		if err == error(errOutside) && path.Clean(name) == w.dir {
			err = unix.EBUSY
		}
		return -1, "", "", err
	}
	return dir, real, base, nil
}

// splitLast splits off the last component; slashes at the end do not count.
func splitLast(name string) (parent, base string) {
	name = strings.TrimRight(name, "/")
	i := strings.LastIndexByte(name, '/')
	if parent = name[:i+1]; parent == "" {
		parent = "/"
	}
	return parent, name[i+1:]
}
