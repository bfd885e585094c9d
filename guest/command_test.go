package main

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestCommandsEndAsTheyEnd(t *testing.T) {
	g, c := startGuest(t)
	cases := map[string]struct {
		script, out, errs string
		want              exit
	}{
		"code":        {"echo out; echo err >&2; exit 7", "out\n", "err\n", exit{0, 7, ""}},
		"signal":      {"kill -9 $$", "", "", exit{1, 9, ""}},
		"pipe signal": {"kill -PIPE $$", "", "", exit{1, 13, ""}},
		"fault":       {"kill -SEGV $$", "", "", exit{1, 11, ""}},
		"cwd":         {"pwd", g.dir + "\n", "", exit{0, 0, ""}},
		"no stdin":    {"cat", "", "", exit{0, 0, ""}},
		"umask":       {"umask", "0022\n", "", exit{0, 0, ""}},
		// gVisor does not show these lines.
		"signals reset":  {"grep -E 'SigIgn|SigBlk' /proc/self/status | grep -v 0000000000000000", "", "", exit{0, 1, ""}},
		"session":        {`read pid name state ppid pgrp sid rest </proc/$$/stat; test $sid = $$`, "", "", exit{0, 0, ""}},
		"only three fds": {"ls /proc/self/fd", "0\n1\n2\n3\n", "", exit{0, 0, ""}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := c.sh(tc.script)
			if got := s.wait(); got != tc.want || string(s.out) != tc.out || string(s.errs) != tc.errs {
				t.Errorf("%+v, out %q, err %q", got, s.out, s.errs)
			}
			s.await("end", func() bool { return s.ended[rOut] && s.ended[rErr] && s.tree })
		})
	}
}

func TestEnvironmentIsTheClients(t *testing.T) {
	_, c := startGuest(t)
	s := c.start(spec{argv: []string{"/usr/bin/env"}, env: []string{"A=1", "B=\xff x\ny"}})
	s.wait()
	if string(s.out) != "A=1\nB=\xff x\ny\n" {
		t.Errorf("%q", s.out)
	}
}

func TestStartErrorsAreToldApart(t *testing.T) {
	g, c := startGuest(t)
	file := func(name, text string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(g.dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	file("plain", "x", 0o644)
	file("noshebang", "echo hi\n", 0o755)
	file("badinterpreter", "#!/nowhere/sh\n", 0o755)
	if err := os.Mkdir(filepath.Join(g.dir, "dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(g.dir, "fifo"), 0o755); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		sp    spec
		kind  byte
		errno syscall.Errno
	}{
		"not in PATH":     {spec{argv: []string{"no-such-program"}}, kindNotFound, syscall.ENOENT},
		"empty name":      {spec{argv: []string{""}}, kindNotFound, syscall.ENOENT},
		"missing path":    {spec{argv: []string{"/no/such"}}, kindNotFound, syscall.ENOENT},
		"interpreter":     {spec{argv: []string{"./badinterpreter"}}, kindNotFound, syscall.ENOENT},
		"not executable":  {spec{argv: []string{"./plain"}}, kindNotExecutable, syscall.EACCES},
		"directory":       {spec{argv: []string{"./dir"}}, kindNotExecutable, syscall.EACCES},
		"fifo":            {spec{argv: []string{"./fifo"}}, kindNotExecutable, syscall.EACCES},
		"in PATH, not x":  {spec{argv: []string{"plain"}, env: []string{"PATH=" + g.dir}}, kindNotExecutable, syscall.EACCES},
		"no shebang":      {spec{argv: []string{"./noshebang"}}, kindNotExecutable, syscall.ENOEXEC},
		"no cwd":          {spec{argv: []string{"true"}, cwd: "/no/such"}, kindBadCwd, syscall.ENOENT},
		"cwd is a file":   {spec{argv: []string{"true"}, cwd: g.dir + "/plain"}, kindBadCwd, syscall.ENOTDIR},
		"long name":       {spec{argv: []string{strings.Repeat("x", 200<<10)}}, kindNotFound, 0},
		"long cwd":        {spec{argv: []string{"true"}, cwd: strings.Repeat("x", 200<<10)}, kindBadCwd, 0},
		"argument length": {spec{argv: []string{"true", strings.Repeat("x", 200<<10)}}, kindOther, 0}, // E2BIG, in gVisor ENAMETOOLONG
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := c.start(tc.sp)
			if got := s.wait(); got.kind != tc.kind || tc.errno != 0 && got.value != int32(tc.errno) || got.text == "" || s.pid != 0 {
				t.Errorf("%+v, pid %d", got, s.pid)
			}
		})
	}
}

func TestRelativePathsStartAtTheWorkdir(t *testing.T) {
	g, c := startGuest(t)
	if err := os.MkdirAll(filepath.Join(g.dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(g.dir, "bin", "hello"), []byte("#!/bin/sh\npwd\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := c.start(spec{argv: []string{"hello"}, cwd: "bin", env: []string{"PATH=:/bin:/usr/bin"}})
	if got := s.wait(); got != (exit{}) || string(s.out) != g.dir+"/bin\n" {
		t.Errorf("%+v %q %q", got, s.out, s.errs)
	}
}

func TestStdinIsStreamedAndHalfClosed(t *testing.T) {
	_, c := startGuest(t)
	s := c.start(spec{argv: []string{"cat"}, stdin: true})
	var data []byte
	for i := range uint32(800 << 10) {
		data = binary.BigEndian.AppendUint32(data, i)
	}
	s.write(data)
	s.eof()
	if got := s.wait(); got != (exit{}) || !bytes.Equal(s.out, data) {
		t.Errorf("%+v, %d bytes", got, len(s.out))
	}
}

func TestDataMayFollowStartAtOnce(t *testing.T) {
	_, c := startGuest(t)
	for range 20 {
		s := c.start(spec{argv: []string{"cat"}, stdin: true})
		c.send(tData, s.id, newFrame(0).raw(strings.Repeat("x", inputCredit)))
		s.eof()
		if s.wait(); len(s.out) != inputCredit {
			t.Fatalf("%d bytes", len(s.out))
		}
	}
}

func TestStdinOfANonReaderIsDropped(t *testing.T) {
	_, c := startGuest(t)
	s := c.start(spec{argv: []string{"sh", "-c", "exec <&-; read line </dev/null; sleep 1000"}, stdin: true})
	s.waitStarted()
	s.write(make([]byte, 2<<20)) // far more than a pipe and a window hold
	if _, _, left := s.kill(syscall.SIGKILL, scopeTree); left != 0 {
		t.Errorf("%d left", left)
	}
	s.wait()
	short := c.start(spec{argv: []string{"true"}, stdin: true})
	short.write(make([]byte, 2<<20))
	if got := short.wait(); got != (exit{}) {
		t.Errorf("%+v", got)
	}
}

func TestExitDoesNotWaitForTheBackground(t *testing.T) {
	_, c := startGuest(t)
	s := c.sh("(read x </dev/null; sleep 1000; echo never) & echo bg")
	if got := s.wait(); got != (exit{}) || string(s.out) != "bg\n" {
		t.Errorf("%+v %q", got, s.out)
	}
	if s.tree || s.ended[rOut] {
		t.Error("the subtree is still there")
	}
	if _, killed, left := s.kill(syscall.SIGKILL, scopeTree); killed < 1 || left != 0 {
		t.Errorf("killed %d, left %d", killed, left)
	}
	s.await("end", func() bool { return s.ended[rOut] && s.ended[rErr] && s.tree })
}

func TestLateOutputFlowsUntilItsEnd(t *testing.T) {
	g, c := startGuest(t)
	if err := syscall.Mkfifo(filepath.Join(g.dir, "gate"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := c.sh("(cat gate; echo late) & echo early")
	s.wait()
	open := c.sh("echo opened >gate")
	open.wait()
	s.await("late output", func() bool { return s.ended[rOut] })
	if string(s.out) != "early\nopened\nlate\n" {
		t.Errorf("%q", s.out)
	}
}

func TestAllOutputComesBeforeExit(t *testing.T) {
	_, c := startGuest(t)
	s := c.sh("head -c 3000000 /dev/zero; head -c 100000 /dev/zero >&2")
	s.wait()
	if len(s.out) != 3000000 || len(s.errs) != 100000 || s.afterExits != 0 {
		t.Errorf("%d and %d bytes, %d frames after EXIT", len(s.out), len(s.errs), s.afterExits)
	}
}

func TestAHundredCommandsAtOnce(t *testing.T) {
	_, c := startGuest(t)
	var all []*testStream
	for range 100 {
		all = append(all, c.sh("echo hi; exit 5"))
	}
	for _, s := range all {
		if got := s.wait(); got != (exit{0, 5, ""}) || string(s.out) != "hi\n" {
			t.Errorf("%+v %q", got, s.out)
		}
		s.await("tree", func() bool { return s.tree })
		s.release()
	}
	c.ping()
}

func TestAStalledReaderStallsNobodyElse(t *testing.T) {
	_, c := startGuest(t)
	const window = 100000
	flood := c.start(spec{argv: []string{"cat", "/dev/zero"}, credit: window, stall: true})
	flood.await("window", func() bool { return len(flood.out) == window })
	for range 5 {
		if got := c.sh("echo beside").wait(); got != (exit{}) {
			t.Errorf("%+v", got)
		}
	}
	if len(flood.out) != window {
		t.Errorf("%d bytes: more than the window", len(flood.out))
	}
	flood.kill(syscall.SIGKILL, scopeTree)
	c.send(tCredit, flood.id, newFrame(4).u32(maxWindow/2)) // EXIT comes after what was in the pipe
	if got := flood.wait(); got != (exit{1, 9, ""}) {
		t.Errorf("%+v", got)
	}
}

func TestTheEndOfAnOutputNeedsNoCredit(t *testing.T) {
	_, c := startGuest(t)
	s := c.start(spec{argv: []string{"printf", "12345"}, credit: 5, stall: true})
	s.await("end", func() bool { return s.ended[rOut] && s.ended[rErr] && s.exit != nil })
	if string(s.out) != "12345" {
		t.Errorf("%q", s.out)
	}
}

func TestAnOutputEndsWhileItsCommandRuns(t *testing.T) {
	_, c := startGuest(t)
	s := c.start(spec{argv: []string{"sh", "-c", "exec >&-; exec sleep 1000"}})
	s.await("end", func() bool { return s.pid != 0 && s.ended[rOut] })
	if s.ended[rErr] || s.exit != nil {
		t.Errorf("%v %v", s.ended, s.exit)
	}
}

func TestReleaseForgetsTheCommandButNotItsSubtree(t *testing.T) {
	g, c := startGuest(t)
	if err := syscall.Mkfifo(filepath.Join(g.dir, "gate"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The background floods a discarded output and must get through.
	s := c.sh("(head -c 1000000 /dev/zero; echo done >gate) & echo ok")
	s.wait()
	s.release()
	wait := c.sh("cat gate")
	if wait.wait(); string(wait.out) != "done\n" {
		t.Errorf("%q", wait.out)
	}
	running := c.sh("echo here; sleep 1000")
	running.waitOut("here")
	running.release()
	if text := running.waitError(); !strings.Contains(text, "EXIT") {
		t.Errorf("%q", text)
	}
}
