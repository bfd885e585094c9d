package main

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestTheGuestOutlivesItsClients(t *testing.T) {
	g, c := startGuest(t)
	c.f.Close()
	for range 3 {
		next := g.connect()
		next.sh("cat /dev/zero").waitOut("\x00")
		next.f.Close()
	}
	if got := g.connect().sh("exit 9").wait(); got != (exit{0, 9, ""}) {
		t.Errorf("%+v", got)
	}
}

func TestTheStreamOutlivesConnect(t *testing.T) {
	g, _ := startGuest(t)
	ours, theirs := socketPair(t)
	cmd := role("connect", g.socket)
	cmd.Stdin, cmd.Stdout = theirs, theirs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	c := newClient(t, ours)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if got := c.sh("exit 9").wait(); got != (exit{0, 9, ""}) {
		t.Errorf("%+v", got)
	}
}

func TestConnectSaysThatNobodyListens(t *testing.T) {
	cmd := role("connect", "@guest-test-nobody")
	cmd.Stderr = nil
	out, err := cmd.Output()
	if err == nil || len(out) > 0 {
		t.Errorf("%q %v", out, err)
	}
}

func TestStrangersOnTheSocketAreClosed(t *testing.T) {
	g, c := startGuest(t)
	for _, first := range []string{"C", "F", "\x00\x00\x00\x00"} {
		s, err := net.Dial("unix", g.socket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write([]byte(first)); err != nil {
			t.Fatal(err)
		}
		if n, err := s.Read(make([]byte, 1)); err == nil {
			t.Errorf("%q was answered by %d bytes", first, n)
		}
		s.Close()
	}
	c.ping()
}

func TestSignalsThatOthersSendDoNotEndTheGuest(t *testing.T) {
	g, c := startGuest(t)
	for _, sig := range []syscall.Signal{
		syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGSYS, syscall.SIGQUIT,
		syscall.SIGABRT, syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE, syscall.SIGUSR1,
	} {
		if err := g.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		c.ping()
	}
}

func TestRealFaultsStillReachTheRuntime(t *testing.T) {
	if err := ignoreSentFaults(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	var none *guest
	t.Log(none.bootID)
}

func TestTermEndsTheGuestAndItsCommands(t *testing.T) {
	g, c := startGuest(t)
	s := c.sh("echo up; sleep 1000")
	s.waitOut("up")
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = g.cmd.Wait()
	if got := g.cmd.ProcessState.ExitCode(); got != 143 {
		t.Errorf("exit code %d", got)
	}
	if alive([]int{s.pid}) != 0 {
		t.Error("a command has survived")
	}
}

func TestArgumentsAreChecked(t *testing.T) {
	for _, arg := range []string{"", "--workdir work", "--workdir /", "--workdir /work --uid 5", "--workdir /work extra", "--nothing"} {
		if o, err := parseInit(strings.Fields(arg)); err == nil {
			t.Errorf("%q: %+v", arg, o)
		}
	}
	o, err := parseInit([]string{"--workdir", "/work/", "--uid", "1", "--gid", "2", "--own-pids", "--stdio"})
	if err != nil || o != (options{"/work", 1, 2, true, true, "@guest"}) {
		t.Errorf("%+v %v", o, err)
	}
}

// TestOtherUsers needs root: init is uid 0, commands and files are uid 1000's.
func TestOtherUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir, err := os.MkdirTemp("/tmp", "guest-user-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chown(dir, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/secret", []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	g, c := startGuestIn(t, dir, "--uid", "1000", "--gid", "1000")

	t.Run("commands", func(t *testing.T) {
		s := c.sh("id -u; id -g; id -G; grep Cap /proc/self/status; pwd; cat secret")
		s.wait()
		none := "0000000000000000"
		if !strings.HasPrefix(string(s.out), "1000\n1000\n1000\nCapInh:\t"+none+"\nCapPrm:\t"+none+"\nCapEff:\t"+none) ||
			!strings.Contains(string(s.out), dir) || !strings.Contains(string(s.errs), "denied") {
			t.Errorf("%q %q", s.out, s.errs)
		}
	})
	t.Run("files", func(t *testing.T) {
		if got := c.write("a/b/c", "text", 0o666); got.kind != kindDone {
			t.Fatalf("%+v", got)
		}
		if text, got := c.readFile("a/b/c"); text != "text" || got.kind != kindDone {
			t.Errorf("%q %+v", text, got)
		}
		for _, p := range []string{"a", "a/b", "a/b/c"} {
			st, err := os.Stat(dir + "/" + p)
			if err != nil {
				t.Fatal(err)
			}
			if u := st.Sys().(*syscall.Stat_t); u.Uid != 1000 || u.Gid != 1000 {
				t.Errorf("%s belongs to %d:%d", p, u.Uid, u.Gid)
			}
		}
	})
	t.Run("files of others", func(t *testing.T) {
		if text, got := c.readFile("secret"); text != "" || got.value != int32(syscall.EACCES) {
			t.Errorf("read: %q %+v", text, got)
		}
		if got := c.write("secret", "x", 0o644); got.value != int32(syscall.EACCES) {
			t.Errorf("write: %+v", got)
		}
	})
	t.Run("kill", func(t *testing.T) {
		s := c.awkward("awkward", "wait")
		s.waitOut("all")
		pids := pidsIn(t, dir+"/awkward")
		if _, killed, left := s.kill(syscall.SIGKILL, scopeTree); killed < 8 || left != 0 || alive(pids) != 0 {
			t.Errorf("killed %d, left %d, alive %d", killed, left, alive(pids))
		}
	})
	t.Run("attacks", func(t *testing.T) {
		s := c.sh("for s in KILL STOP SEGV TERM; do for p in /proc/$PPID/task/*; do kill -$s ${p##*/} && echo done; done; done 2>/dev/null; kill -KILL $PPID && echo done")
		if s.wait(); len(s.out) > 0 || !strings.Contains(string(s.errs), "not permitted") {
			t.Errorf("%q %q", s.out, s.errs)
		}
		c.ping()
	})
	t.Run("socket", func(t *testing.T) {
		ours, theirs := socketPair(t)
		defer ours.Close()
		self, err := os.Open(os.Args[0]) // its directory may be closed to the user
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/proc/self/fd/3")
		cmd.Env = append(os.Environ(), "GUEST_TEST_ROLE=connect", "GUEST_TEST_SOCKET="+g.socket)
		cmd.ExtraFiles = []*os.File{self}
		cmd.Stdin, cmd.Stdout = theirs, theirs
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
		out := &strings.Builder{}
		cmd.Stderr = out
		if err := cmd.Run(); err == nil || !strings.Contains(out.String(), "refused") {
			t.Errorf("%v %q", err, out)
		}
		theirs.Close()
		c.ping()
	})
}
