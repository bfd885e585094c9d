package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func (c *client) terminal(script string) *testStream {
	return c.start(spec{argv: []string{"sh", "-c", script}, flags: flagPty, rows: 43, cols: 132})
}

func (s *testStream) resize(rows, cols uint16) {
	s.c.send(tResize, s.id, newFrame(4).u16(rows).u16(cols))
}

func TestTerminalHasItsSizeFromTheFirstByte(t *testing.T) {
	_, c := startGuest(t)
	s := c.terminal("stty size; tty; exit 3")
	if got := s.wait(); got != (exit{0, 3, ""}) {
		t.Errorf("%+v", got)
	}
	if out := string(s.out); !strings.HasPrefix(out, "43 132\r\n/dev/pts/") {
		t.Errorf("%q", out)
	}
	if len(s.errs) > 0 {
		t.Errorf("a terminal has one output, and stderr got %q", s.errs)
	}
}

func TestTerminalIsResized(t *testing.T) {
	_, c := startGuest(t)
	s := c.terminal("trap 'stty size; exit 0' WINCH; echo armed; while :; do sleep 0.05; done")
	s.waitOut("armed")
	s.resize(30, 100)
	s.waitOut("30 100")
	if got := s.wait(); got.kind != 0 || got.value != 0 {
		t.Errorf("%+v", got)
	}
}

func TestTerminalSizesAreClamped(t *testing.T) {
	_, c := startGuest(t)
	s := c.terminal("read line; stty size")
	s.resize(0, 65535)
	s.write([]byte("\n"))
	s.wait()
	if !strings.Contains(string(s.out), "1 1000") {
		t.Errorf("%q", s.out)
	}
}

func TestResizeOfWhatHasNoTerminalIsRefused(t *testing.T) {
	_, c := startGuest(t)
	s := c.sh("sleep 1000")
	s.waitStarted()
	s.resize(1, 1)
	s.waitError()
}

func TestLastOutputOfATerminalComesBeforeItsExit(t *testing.T) {
	_, c := startGuest(t)
	for range 30 {
		s := c.terminal("printf last")
		s.wait()
		if string(s.out) != "last" {
			t.Fatalf("%q", s.out)
		}
		s.release()
	}
}

func TestTerminalTypesAndInterrupts(t *testing.T) {
	_, c := startGuest(t)
	s := c.terminal("trap 'echo interrupted' INT; read line; echo \"got $line\"")
	s.waitStarted()
	s.write([]byte("hello\n"))
	s.waitOut("got hello")
	if got := s.wait(); got != (exit{0, 0, ""}) {
		t.Errorf("%+v", got)
	}
	s = c.terminal("trap 'echo interrupted; exit 5' INT; echo ready; while :; do sleep 0.05; done")
	s.waitOut("ready")
	s.write([]byte{3})
	if got := s.wait(); got != (exit{0, 5, ""}) {
		t.Errorf("%+v", got)
	}
}

func TestBytesPassARawTerminalUnchanged(t *testing.T) {
	_, c := startGuest(t)
	s := c.terminal("stty raw -echo; echo ready; head -c 1000000")
	s.waitOut("ready")
	data := make([]byte, 1_000_000)
	for i := range data {
		data[i] = byte(i * 7 / 3)
	}
	s.write(data)
	s.wait()
	_, got, _ := strings.Cut(string(s.out), "ready\n")
	if got != string(data) {
		t.Errorf("%d bytes came back, not the %d sent", len(got), len(data))
	}
}

func TestTerminalsAreNotStopped(t *testing.T) {
	_, c := startGuest(t)
	s := c.terminal("read line; echo still here")
	s.waitStarted()
	command := c.sh("sleep 1000")
	command.waitStarted()
	if n := c.stopAll(); n != 1 {
		t.Errorf("stopped %d", n)
	}
	s.write([]byte("\n"))
	s.waitOut("still here")
}

func TestALostConnectionEndsItsTerminals(t *testing.T) {
	g, c := startGuest(t)
	dir := filepath.Join(g.dir, "pids")
	s := c.start(spec{argv: []string{"sh", "-c", awkward + "wait", "sh", dir}, flags: flagPty, rows: 24, cols: 80})
	s.waitOut("all")
	pids := pidsIn(t, dir)
	c.f.Close()
	awaitDead(t, pids)
}

func TestLastingCommandsOutliveConnectionAndStop(t *testing.T) {
	g, c := startGuest(t)
	pidFile := filepath.Join(g.dir, "pid")
	s := c.start(spec{argv: []string{"sh", "-c", "setsid sleep 1000 & echo $! >" + pidFile + "; echo nobody hears"}, flags: flagLasting})
	if got := s.wait(); got != (exit{0, 0, ""}) {
		t.Errorf("%+v", got)
	}
	if len(s.out) > 0 {
		t.Errorf("%q", s.out)
	}
	if n := c.stopAll(); n != 0 {
		t.Errorf("stopped %d", n)
	}
	b, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	pids := []int{pid}
	neighbour := c.sh("sleep 1000")
	gone := []int{neighbour.waitStarted()}
	c.f.Close()
	awaitDead(t, gone)
	if alive(pids) != 1 {
		t.Error("it ended with its connection")
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	awaitDead(t, pids)
}

func TestThereAreOnlySoManyLastingCommands(t *testing.T) {
	_, c := startGuest(t)
	for range maxLasting {
		s := c.start(spec{argv: []string{"sleep", "1000"}, flags: flagLasting})
		s.waitStarted()
		defer s.kill(syscall.SIGKILL, scopeTree)
	}
	if got := c.start(spec{argv: []string{"true"}, flags: flagLasting}).wait(); got.kind != kindLimit {
		t.Errorf("%+v", got)
	}
	if got := c.sh("exit 2").wait(); got != (exit{0, 2, ""}) {
		t.Errorf("%+v", got)
	}
}
