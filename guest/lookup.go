package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// startError is a command that could not be started, as EXIT tells it.
type startError struct {
	kind  byte
	errno syscall.Errno
	text  string
}

func (e startError) Error() string { return e.text }

// location is what a START means inside.
type location struct{ cwd, program string }

const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// locate checks the directory and finds the program, as the command's user. An empty or relative cwd starts at the workdir.
func (g *guest) locate(s *start) (location, error) {
	cwd := s.cwd
	if !strings.HasPrefix(cwd, "/") {
		cwd = strings.TrimSuffix(g.files.dir+"/"+cwd, "/")
	}
	if err := checkDir(cwd); err != nil {
		e := asErrno(err)
		return location{}, startError{kindBadCwd, e, fmt.Sprintf("working directory %q: %v", s.cwd, e)}
	}
	program, err := lookPath(s.argv[0], cwd, s.env)
	return location{cwd, program}, err
}

func checkDir(dir string) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	unix.Close(fd)
	return unix.Faccessat(unix.AT_FDCWD, dir, unix.X_OK, unix.AT_EACCESS)
}

// lookPath finds the program in the command's own PATH. The result is absolute.
func lookPath(name, cwd string, env []string) (string, error) {
	notFound := startError{kindNotFound, syscall.ENOENT, fmt.Sprintf("%q: not found", name)}
	if name == "" {
		return "", notFound
	}
	if strings.Contains(name, "/") {
		file := absolute(name, cwd)
		return file, checkProgram(file, name)
	}
	path := defaultPath
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
			break
		}
	}
	var worst error = notFound
	for _, dir := range strings.Split(path, ":") {
		file := absolute(dir, cwd) + "/" + name
		err := checkProgram(file, name)
		if err == nil {
			return file, nil
		}
		var s startError
		if errors.As(err, &s) && s.kind != kindNotFound { // there is one, but not an executable: keep looking
			worst = err
		}
	}
	return "", worst
}

func absolute(p, cwd string) string {
	if strings.HasPrefix(p, "/") {
		return p
	}
	return cwd + "/" + p
}

func checkProgram(file, name string) error {
	var st unix.Stat_t
	err := unix.Stat(file, &st)
	switch {
	case err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ENAMETOOLONG:
		return startError{kindNotFound, asErrno(err), fmt.Sprintf("%q: not found", name)}
	case err != nil:
	case fileType(&st) == unix.S_IFDIR:
		return startError{kindNotExecutable, syscall.EACCES, fmt.Sprintf("%q: is a directory", name)}
	case fileType(&st) != unix.S_IFREG: // gVisor would open a FIFO to execute it, and wait for its other end
		return startError{kindNotExecutable, syscall.EACCES, fmt.Sprintf("%q: is not a regular file", name)}
	case st.Mode&0o111 == 0:
		err = unix.EACCES
	default:
		err = unix.Faccessat(unix.AT_FDCWD, file, unix.X_OK, unix.AT_EACCESS)
	}
	if err != nil {
		return startError{kindNotExecutable, asErrno(err), fmt.Sprintf("%q: not executable: %v", name, err)}
	}
	return nil
}

// spawnError tells apart what fork and exec answered. The program and the directory were there a moment ago.
func spawnError(err error, program string) error {
	switch e := asErrno(err); e {
	case syscall.ENOEXEC:
		return startError{kindNotExecutable, e, fmt.Sprintf("%q: not executable: exec format error", program)}
	case syscall.EACCES, syscall.EPERM:
		return startError{kindNotExecutable, e, fmt.Sprintf("%q: not executable: %v", program, e)}
	case syscall.ENOENT:
		return startError{kindNotFound, e, fmt.Sprintf("%q: its interpreter was not found", program)}
	default:
		return limitError(err)
	}
}

func limitError(err error) error {
	e := asErrno(err)
	switch e {
	case syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE:
		return startError{kindLimit, e, "a limit of the sandbox: " + err.Error()}
	}
	return startError{kindOther, e, err.Error()}
}

// asErrno is 0 for an error that has none.
func asErrno(err error) syscall.Errno {
	var e syscall.Errno
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(err, os.ErrClosed) {
		return syscall.EBADF
	}
	return 0
}
