package main

import (
	"bytes"
	"fmt"
	"os"
	"sort"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func (c *client) write(path, text string, mode uint32) exit {
	c.t.Helper()
	s := c.open(tWrite, newFrame(0).u32(mode).str(path))
	s.write([]byte(text))
	s.eof()
	return s.wait()
}

func (c *client) readFile(path string) (string, exit) {
	c.t.Helper()
	s := c.open(tRead, newFrame(0).u32(256<<10).str(path))
	e := s.wait()
	return string(s.out), e
}

func (c *client) op(kind byte, e encoder) exit {
	c.t.Helper()
	return c.open(kind, e).wait()
}

func (c *client) stat(path string) (status, exit) {
	c.t.Helper()
	e := c.op(tStat, newFrame(0).str(path))
	return decodeStatus(e.text), e
}

func decodeStatus(text string) status {
	d := decoder{b: []byte(text)}
	return status{mode: d.u32(), size: uint64(d.u32())<<32 | uint64(d.u32()), mtime: uint64(d.u32())<<32 | uint64(d.u32())}
}

func (c *client) list(path string, credit uint32) ([]string, exit) {
	c.t.Helper()
	s := c.open(tList, newFrame(0).u32(credit).str(path))
	e := s.wait()
	var names []string
	for d := (decoder{b: s.out}); len(d.b) > 0; {
		d.take(20)
		names = append(names, string(d.take(int(d.u16()))))
		if d.err != nil {
			c.t.Fatalf("%q", s.out)
		}
	}
	sort.Strings(names)
	return names, e
}

func mustDo(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestFilesAreWrittenAndReadExactly(t *testing.T) {
	g, c := startGuest(t)
	big := string(bytes.Repeat([]byte("0123456789abcde\n"), 300<<10))
	for name, text := range map[string]string{
		"empty": "", "a": "x", "new/deep/\xff\xfe \n b": "bytes\x00\xff", "big": big, g.dir + "/abs": "absolute",
	} {
		e := c.write(name, text, 0o640)
		if st := decodeStatus(e.text); e.kind != kindDone || st.size != uint64(len(text)) || st.mode != unix.S_IFREG|0o640 || st.mtime == 0 {
			t.Errorf("write %q: %+v", name, e)
		}
		s := c.open(tRead, newFrame(0).u32(100000).str(name))
		e = s.wait()
		if string(s.out) != text || e.kind != kindDone || decodeStatus(e.text).size != uint64(len(text)) || decodeStatus(string(s.opened)).size != uint64(len(text)) {
			t.Errorf("read %q: %d bytes, %+v", name, len(s.out), e)
		}
		if st, e := c.stat(name); st.size != uint64(len(text)) || e.kind != kindDone {
			t.Errorf("stat %q: %+v", name, e)
		}
	}
}

func TestReadEndsWithoutCreditToSpare(t *testing.T) {
	g, c := startGuest(t)
	mustDo(t, os.WriteFile(g.dir+"/f", []byte("12345"), 0o644), os.WriteFile(g.dir+"/none", nil, 0o644))
	for name, credit := range map[string]uint32{"f": 5, "none": 0} {
		c.mu.Lock()
		c.next++
		s := &testStream{c: c, id: c.next, stall: true, ended: map[byte]bool{}, killed: map[uint32][3]uint32{}}
		c.streams[s.id] = s
		c.mu.Unlock()
		c.send(tRead, s.id, newFrame(0).u32(credit).str(name))
		if e := s.wait(); e.kind != kindDone || len(s.out) != int(credit) || s.opened == nil {
			t.Errorf("%+v %q", e, s.out)
		}
	}
}

func TestWriteIsAtomic(t *testing.T) {
	g, c := startGuest(t)
	mustDo(t, os.WriteFile(g.dir+"/f", []byte("old"), 0o600), os.Mkdir(g.dir+"/real", 0o755),
		os.WriteFile(g.dir+"/real/target", []byte("old"), 0o755), os.Symlink("real/target", g.dir+"/link"), os.Symlink("link", g.dir+"/link2"),
		os.Symlink(g.dir+"/real/fresh", g.dir+"/dangling"))
	s := c.open(tWrite, newFrame(0).u32(0o644).str("f"))
	s.write([]byte("new text"))
	c.ping()
	if b, _ := os.ReadFile(g.dir + "/f"); string(b) != "old" {
		t.Errorf("before the end: %q", b)
	}
	if names, _ := c.list("", 1<<16); len(names) != 5 {
		t.Errorf("the temporary is listed: %q", names)
	}
	s.eof()
	if e := s.wait(); e.kind != kindDone || decodeStatus(e.text).mode&0o777 != 0o600 {
		t.Errorf("%+v", e)
	}
	if b, _ := os.ReadFile(g.dir + "/f"); string(b) != "new text" {
		t.Errorf("after the end: %q", b)
	}
	if e := c.write("link2", "through", 0o644); e.kind != kindDone {
		t.Errorf("%+v", e)
	}
	if b, _ := os.ReadFile(g.dir + "/real/target"); string(b) != "through" {
		t.Errorf("target of the link: %q", b)
	}
	if st, err := os.Lstat(g.dir + "/link"); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Error("the link was replaced")
	}
	if st, err := os.Stat(g.dir + "/real/target"); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("mode %v", st.Mode())
	}
	if e := c.write("dangling", "made", 0o644); e.kind != kindDone {
		t.Errorf("%+v", e)
	}
	if b, _ := os.ReadFile(g.dir + "/real/fresh"); string(b) != "made" {
		t.Errorf("target of the dangling link: %q", b)
	}
}

func leftovers(t *testing.T, dir string) (n int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	mustDo(t, err)
	for _, e := range entries {
		if isTemporary(e.Name()) {
			n++
		}
	}
	return n
}

func TestAnUnfinishedWriteLeavesNothing(t *testing.T) {
	g, c := startGuest(t)
	t.Run("released", func(t *testing.T) {
		s := c.open(tWrite, newFrame(0).u32(0o644).str("f"))
		s.write(make([]byte, 100000))
		s.release()
		if e := s.wait(); e.kind != kindFailed || e.value != int32(unix.ECANCELED) {
			t.Errorf("%+v", e)
		}
	})
	t.Run("hung up", func(t *testing.T) {
		other := g.connect()
		s := other.open(tWrite, newFrame(0).u32(0o644).str("f"))
		s.write(make([]byte, 100000))
		other.f.Close()
		stop := g.connect() // answered after the other's temporary has gone, at the latest when it is seen to have
		for leftovers(t, g.dir) > 0 {
			stop.ping()
		}
	})
	t.Run("disk full", func(t *testing.T) {
		full := g.dir + "/full"
		mustDo(t, os.Mkdir(full, 0o755))
		if err := unix.Mount("none", full, "tmpfs", 0, "size=1m"); err == unix.EPERM {
			t.Skip("may not mount")
		}
		defer func() { _ = unix.Unmount(full, unix.MNT_DETACH) }()
		mustDo(t, os.WriteFile(full+"/f", []byte("old"), 0o644))
		if e := c.write("full/f", strings.Repeat("x", 2<<20), 0o644); e.kind != kindFailed || e.value != int32(unix.ENOSPC) {
			t.Errorf("%+v", e)
		}
		if b, _ := os.ReadFile(full + "/f"); string(b) != "old" || leftovers(t, full) != 0 {
			t.Errorf("%q, %d left", b, leftovers(t, full))
		}
	})
	if _, err := os.Lstat(g.dir + "/f"); err == nil || leftovers(t, g.dir) != 0 {
		t.Error("something was left")
	}
}

func TestAReadCanBeAbandoned(t *testing.T) {
	g, c := startGuest(t)
	mustDo(t, os.WriteFile(g.dir+"/f", make([]byte, 1<<20), 0o644))
	s := c.open(tRead, newFrame(0).u32(1).str("f"))
	c.mu.Lock()
	s.stall = true
	c.mu.Unlock()
	s.await("opened", func() bool { return s.opened != nil })
	s.release()
	if e := s.wait(); e.kind != kindFailed || e.value != int32(unix.ECANCELED) {
		t.Errorf("%+v", e)
	}
}

func TestListing(t *testing.T) {
	g, c := startGuest(t)
	var want []string
	mustDo(t, os.Mkdir(g.dir+"/d", 0o755))
	for i := range 1000 {
		name := fmt.Sprintf(".%d-%s", i, strings.Repeat("n", i%200))
		want = append(want, name)
		mustDo(t, os.WriteFile(g.dir+"/d/"+name, nil, 0o644))
	}
	for _, name := range []string{"link", "fifo", "sp ace\n\xff"} {
		want = append(want, name)
	}
	mustDo(t, os.Symlink("nowhere", g.dir+"/d/link"), syscall.Mkfifo(g.dir+"/d/fifo", 0o600), os.Mkdir(g.dir+"/d/sp ace\n\xff", 0o700),
		os.WriteFile(g.dir+"/d/"+temporaryName(), nil, 0o600))
	sort.Strings(want)
	for _, credit := range []uint32{300, 1 << 20} {
		names, e := c.list("d", credit)
		if e.kind != kindDone || strings.Join(names, "/") != strings.Join(want, "/") {
			t.Errorf("%d names, %+v", len(names), e)
		}
	}
	if names, e := c.list("", 1000); e.kind != kindDone || len(names) != 1 {
		t.Errorf("%q %+v", names, e)
	}
}

func TestMkdirRemoveRename(t *testing.T) {
	g, c := startGuest(t)
	mkdir := func(p string) exit { return c.op(tMkdir, newFrame(0).u32(0o700).str(p)) }
	remove := func(p string, recursive byte) exit { return c.op(tRemove, newFrame(0).u8(recursive).str(p)) }
	rename := func(a, b string) exit { return c.op(tRename, newFrame(0).str(a).str(b)) }
	check := func(what string, e exit, kind byte, errno syscall.Errno) {
		t.Helper()
		if e.kind != kind || e.value != int32(errno) {
			t.Errorf("%s: %+v", what, e)
		}
	}
	check("mkdir", mkdir("a/b/c"), kindDone, 0)
	check("mkdir again", mkdir("a/b/c/"), kindDone, 0)
	if st, err := os.Stat(g.dir + "/a/b/c"); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", st, err)
	}
	if st, err := os.Stat(g.dir + "/a/b"); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("%v %v", st, err)
	}
	mustDo(t, os.WriteFile(g.dir+"/a/b/c/f", nil, 0o644), os.Symlink("/etc", g.dir+"/a/out"), syscall.Mkfifo(g.dir+"/a/fifo", 0o600))
	check("mkdir below a file", mkdir("a/b/c/f/g"), kindFailed, unix.ENOTDIR)
	check("mkdir on a file", mkdir("a/b/c/f"), kindFailed, unix.ENOTDIR)
	check("mkdir outside", mkdir("a/out/x"), kindOutside, 0)
	check("rename", rename("a/b/c/f", "a/f"), kindDone, 0)
	check("rename missing", rename("a/none", "a/g"), kindFailed, unix.ENOENT)
	check("rename out", rename("a/f", "../f"), kindOutside, 0)
	check("rename in", rename("../f", "a/g"), kindOutside, 0)
	check("rename through a link", rename("a/f", "a/out/f"), kindOutside, 0)
	check("remove full", remove("a", 0), kindFailed, unix.ENOTEMPTY)
	check("remove missing", remove("a/none", 1), kindFailed, unix.ENOENT)
	check("remove the workdir", remove("", 1), kindFailed, unix.EBUSY)
	check("remove the workdir by name", remove(g.dir, 1), kindFailed, unix.EBUSY)
	check("remove dots", remove("a/..", 1), kindFailed, unix.EINVAL)
	check("remove outside", remove("../x", 1), kindOutside, 0)
	check("remove link", remove("a/out", 1), kindDone, 0)
	check("remove empty", remove("a/b/c", 0), kindDone, 0)
	deep := g.dir + "/a/b"
	for i := range 200 {
		deep += fmt.Sprint("/", i)
		mustDo(t, os.Mkdir(deep, 0o755), os.WriteFile(deep+"/f", nil, 0o644))
	}
	mustDo(t, os.Symlink("/tmp", deep+"/out"))
	check("remove all", remove("a/", 1), kindDone, 0)
	if entries, err := os.ReadDir(g.dir); err != nil || len(entries) != 0 {
		t.Errorf("%v %v", entries, err)
	}
	if _, err := os.Stat("/tmp"); err != nil {
		t.Error("a link was followed")
	}
}
