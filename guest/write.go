package main

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// upload is a WRITE under way: a temporary file beside its target.
type upload struct {
	dir        int // O_PATH
	fd         int
	temp, base string
	mode       uint32
}

const (
	permBits = 0o777
	umask    = 0o022
)

// openWrite makes the missing parents and the temporary. All methods must run under identity.do, but for write.
func (w *workspace) openWrite(p string, mode uint32) (*upload, error) {
	name, err := w.name(p)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(name, "/") {
		return nil, unix.EISDIR
	}
	parent, base := splitLast(name)
	if base == "." || base == ".." {
		return nil, unix.EISDIR
	}
	if path.Clean(name) == w.dir {
		return nil, unix.EISDIR
	}
	dir, real, err := w.makeDirs(parent, 0o755)
	if err != nil {
		return nil, err
	}
	u := &upload{dir: dir, fd: -1, base: base, mode: mode & permBits &^ umask}
	if err := u.open(w, real); err != nil {
		unix.Close(u.dir)
		return nil, err
	}
	return u, nil
}

// open finds the name that will be replaced and creates the temporary beside it. real is the path of u.dir.
func (u *upload) open(w *workspace, real string) error {
	for links := 0; ; links++ {
		var st unix.Stat_t
		err := unix.Fstatat(u.dir, u.base, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == unix.ENOENT {
			break
		}
		if err != nil {
			return err
		}
		switch fileType(&st) {
		case unix.S_IFREG:
			if err := mayWrite(u.dir, u.base); err != nil {
				return err
			}
			u.mode = st.Mode & permBits
		case unix.S_IFDIR:
			return unix.EISDIR
		case unix.S_IFLNK:
			if links == maxLinks {
				return unix.ELOOP
			}
			if real, err = u.follow(w, real); err != nil {
				return err
			}
			continue
		default:
			return errNotRegular
		}
		break
	}
	u.temp = temporaryName()
	fd, err := unix.Openat(u.dir, u.temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	u.fd = fd
	return err
}

// follow moves to what the symbolic link at u.base points to. Its directory must exist, as for open(O_CREAT).
func (u *upload) follow(w *workspace, real string) (string, error) {
	target, err := readLink(u.dir, u.base)
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(target, "/") {
		target = real + "/" + target
	}
	parent, base := splitLast(target)
	if strings.HasSuffix(target, "/") || base == "." || base == ".." {
		return "", unix.EISDIR
	}
	dir, real, err := w.open(parent, unix.O_DIRECTORY)
	if err != nil {
		return "", err
	}
	unix.Close(u.dir)
	u.dir, u.base = dir, base
	return real, nil
}

// mayWrite refuses what the user could not write in place: a rename would not ask.
func mayWrite(dir int, name string) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	switch err {
	case nil:
		unix.Close(fd)
		return nil
	case unix.ETXTBSY: // a program that runs may be replaced
		return nil
	}
	return err
}

// write may run on any thread.
func (u *upload) write(p []byte) error {
	for len(p) > 0 {
		n, err := unix.Write(u.fd, p)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// commit puts the file in its place. The upload is over, whatever it returns.
func (u *upload) commit() (status, error) {
	var st unix.Stat_t
	err := unix.Fchmod(u.fd, u.mode)
	if err == nil {
		err = u.stillFree()
	}
	if err == nil {
		err = unix.Renameat(u.dir, u.temp, u.dir, u.base)
	}
	if err != nil {
		u.abort()
		return status{}, err
	}
	err = unix.Fstat(u.fd, &st)
	unix.Close(u.fd)
	unix.Close(u.dir)
	return statusOf(&st), err
}

// stillFree refuses to replace a FIFO, a device or a link that has taken the name meanwhile.
func (u *upload) stillFree() error {
	var st unix.Stat_t
	err := unix.Fstatat(u.dir, u.base, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err == unix.ENOENT:
		return nil
	case err != nil:
		return err
	case fileType(&st) == unix.S_IFDIR:
		return unix.EISDIR
	case fileType(&st) != unix.S_IFREG:
		return errNotRegular
	}
	return nil
}

// abort leaves nothing behind.
func (u *upload) abort() {
	_ = unix.Unlinkat(u.dir, u.temp, 0) // gone already is as good
	unix.Close(u.fd)
	unix.Close(u.dir)
}
