package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// hostileTree is a workdir with everything that must not be read or written, and what must be.
func hostileTree(t testing.TB, dir string) {
	t.Helper()
	for _, err := range []error{
		os.WriteFile(dir+"/in", []byte("inside"), 0o644),
		os.Mkdir(dir+"/d", 0o755),
		os.WriteFile(dir+"/d/x", []byte("inside"), 0o644),
		os.Symlink("/etc/passwd", dir+"/out"),
		os.Symlink("/etc", dir+"/outdir"),
		os.Symlink("../../../../../../etc/passwd", dir+"/up"),
		os.Symlink(dir+"/in", dir+"/abs"),
		os.Symlink("d", dir+"/dlink"),
		os.Symlink("in", dir+"/rel"),
		os.Symlink("loop", dir+"/loop"),
		os.Symlink("/proc/self/fd/0", dir+"/magic"),
		os.Symlink("/proc/self/root/etc/passwd", dir+"/magicroot"),
		os.Symlink("/nowhere/at/all", dir+"/danglingout"),
		syscall.Mkfifo(dir+"/fifo", 0o666),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); err == nil {
		_ = unix.Bind(fd, &unix.SockaddrUnix{Name: dir + "/socket"})
		unix.Close(fd)
	}
}

func TestNothingOutsideIsReachedAndNothingBlocks(t *testing.T) {
	g, c := startGuest(t)
	hostileTree(t, g.dir)
	parent := filepath.Base(g.dir)
	device := os.Getuid() == 0 && unix.Mknod(g.dir+"/null", unix.S_IFCHR|0o666, 1<<8|3) == nil
	reads := map[string]exit{
		"in": {kind: kindDone}, "d/../in": {kind: kindDone}, "dlink/../in": {kind: kindDone}, "dlink/x": {kind: kindDone}, "abs": {kind: kindDone}, "rel": {kind: kindDone},
		g.dir + "/in": {kind: kindDone}, "../" + parent + "/in": {kind: kindDone}, ".//./in": {kind: kindDone},
		"../x": {kind: kindOutside}, "/etc/passwd": {kind: kindOutside}, "/": {kind: kindOutside}, "out": {kind: kindOutside}, "outdir/passwd": {kind: kindOutside},
		"up": {kind: kindOutside}, "../../../../etc/nothing": {kind: kindOutside}, "magicroot": {kind: kindFailed, value: int32(unix.ELOOP)},
		"magic": {kind: kindFailed, value: int32(unix.ELOOP)}, "loop": {kind: kindFailed, value: int32(unix.ELOOP)},
		"fifo": {kind: kindNotRegular}, "socket": {kind: kindNotRegular},
		"none": {kind: kindFailed, value: int32(unix.ENOENT)}, "in/x": {kind: kindFailed, value: int32(unix.ENOTDIR)},
		"": {kind: kindFailed, value: int32(unix.EISDIR)}, "d": {kind: kindFailed, value: int32(unix.EISDIR)},
		"a\x00b": {kind: kindFailed, value: int32(unix.EINVAL)}, strings.Repeat("x", 5000): {kind: kindFailed, value: int32(unix.ENAMETOOLONG)},
		g.dir + "x/in": {kind: kindOutside},
	}
	if device {
		reads["null"] = exit{kind: kindNotRegular}
	}
	for path, want := range reads {
		text, got := c.readFile(path)
		if got.kind != want.kind || got.value != want.value || want.kind == kindDone && text != "inside" || want.kind != kindDone && text != "" {
			t.Errorf("read %.40q: %q %d %d %.100s", path, text, got.kind, got.value, got.text)
		}
	}
	writes := map[string]exit{
		"../x": {kind: kindOutside}, "/etc/sandboxhub-test": {kind: kindOutside}, "out": {kind: kindOutside}, "outdir/sandboxhub-test": {kind: kindOutside}, "up": {kind: kindOutside},
		"outdir/new/x": {kind: kindOutside}, "danglingout": {kind: kindOutside},
		"fifo": {kind: kindNotRegular}, "socket": {kind: kindNotRegular}, "": {kind: kindFailed, value: int32(unix.EISDIR)},
		"d": {kind: kindFailed, value: int32(unix.EISDIR)}, "new/": {kind: kindFailed, value: int32(unix.EISDIR)}, "d/.": {kind: kindFailed, value: int32(unix.EISDIR)},
		"in/x": {kind: kindFailed, value: int32(unix.ENOTDIR)}, "loop": {kind: kindFailed, value: int32(unix.ELOOP)},
	}
	if device {
		writes["null"] = exit{kind: kindNotRegular}
	}
	for path, want := range writes {
		if got := c.write(path, "evil", 0o644); got.kind != want.kind || got.value != want.value {
			t.Errorf("write %q: %+v", path, got)
		}
	}
	for _, path := range []string{"out", "outdir", "..", "/etc"} {
		if _, got := c.stat(path); got.kind != kindOutside {
			t.Errorf("stat %q: %+v", path, got)
		}
		if names, got := c.list(path, 10000); got.kind != kindOutside && got.value != int32(unix.ENOTDIR) || len(names) > 0 {
			t.Errorf("list %q: %+v %q", path, got, names)
		}
	}
	if _, got := c.list("in", 10000); got.kind != kindFailed || got.value != int32(unix.ENOTDIR) {
		t.Errorf("list of a file: %+v", got)
	}
	if st, got := c.stat("fifo"); got.kind != kindDone || st.mode&unix.S_IFMT != unix.S_IFIFO {
		t.Errorf("stat of a FIFO: %+v", got)
	}
}

// Both ways to resolve a path agree.
func TestTheWalkDoesWhatOpenat2Does(t *testing.T) {
	dir := t.TempDir()
	hostileTree(t, dir)
	fast, err := newWorkspace(dir)
	mustDo(t, err)
	slow := &workspace{dir: fast.dir, asIs: fast.asIs, root: fast.root, walk: true}
	for _, p := range []string{
		"", ".", "in", "in/", "d", "d/", "d/x", "d/../in", "dlink/../in", "dlink/x", "abs", "rel", "rel/", "out", "outdir", "outdir/passwd", "up", "loop",
		"fifo", "none", "none/x", "in/x", "..", "../..", "/", "/etc", "danglingout", "//" + dir + "//in", "dlink/", "d/../../x",
	} {
		compareWalk(t, fast, slow, p)
	}
}

func compareWalk(t testing.TB, fast, slow *workspace, p string) {
	t.Helper()
	for _, flags := range []int{0, unix.O_DIRECTORY} {
		a, err1 := resolved(fast, p, flags)
		b, err2 := resolved(slow, p, flags)
		if a != b || err1 != err2 {
			t.Errorf("%q, flags %o: openat2 %q %v, walk %q %v", p, flags, a, err1, b, err2)
		}
		if err1 == nil && !fast.inside(a) {
			t.Errorf("%q is %q: outside", p, a)
		}
	}
}

func resolved(w *workspace, p string, flags int) (string, error) {
	name, err := w.name(p)
	if err != nil {
		return "", err
	}
	fd, real, err := w.open(name, flags)
	if err == nil {
		unix.Close(fd)
	}
	return real, err
}
