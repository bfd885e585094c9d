package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is also the guest: see startGuest.
func TestMain(m *testing.M) {
	switch os.Getenv("GUEST_TEST_ROLE") {
	case "init":
		o, err := parseInit(os.Args[1:])
		if err == nil {
			o.socket = os.Getenv("GUEST_TEST_SOCKET")
			err = runInit(o)
		}
		fmt.Fprintln(os.Stderr, "init:", err)
		os.Exit(1)
	case "connect":
		if err := runConnect(os.Getenv("GUEST_TEST_SOCKET")); err != nil {
			fmt.Fprintln(os.Stderr, "connect:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// patience is how long a test waits for what must come; it only bounds a failure.
const patience = 60 * time.Second

type testGuest struct {
	t      *testing.T
	dir    string
	socket string
	cmd    *exec.Cmd
}

func socketPair(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
}

func role(name, socket string, arg ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], arg...)
	cmd.Env = append(os.Environ(), "GUEST_TEST_ROLE="+name, "GUEST_TEST_SOCKET="+socket)
	cmd.Stderr = os.Stderr
	return cmd
}

// startGuest runs init as a child process and returns its first connection.
func startGuest(t *testing.T, arg ...string) (*testGuest, *client) {
	t.Helper()
	return startGuestIn(t, t.TempDir(), arg...)
}

func startGuestIn(t *testing.T, dir string, arg ...string) (*testGuest, *client) {
	t.Helper()
	ours, theirs := socketPair(t)
	g := &testGuest{t: t, dir: dir, socket: fmt.Sprintf("@guest-test-%d-%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-"))}
	g.cmd = role("init", g.socket, append([]string{"--workdir", dir, "--stdio"}, arg...)...)
	g.cmd.Stdin, g.cmd.Stdout = theirs, theirs
	if limit := os.Getenv("GUEST_TEST_NOFILE"); limit != "" {
		g.cmd.Args = append([]string{"sh", "-c", "ulimit -n " + limit + `; exec "$0" "$@"`}, g.cmd.Args...)
		g.cmd.Path = "/bin/sh"
	}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	t.Cleanup(func() {
		_ = g.cmd.Process.Signal(syscall.SIGTERM)
		_ = g.cmd.Wait()
	})
	return g, newClient(t, ours)
}

// connect opens one more connection through `guest connect`.
func (g *testGuest) connect() *client {
	g.t.Helper()
	ours, theirs := socketPair(g.t)
	cmd := role("connect", g.socket)
	cmd.Stdin, cmd.Stdout = theirs, theirs
	if err := cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	theirs.Close()
	c := newClient(g.t, ours)
	g.t.Cleanup(func() {
		c.f.Close()
		if err := cmd.Wait(); err != nil {
			g.t.Errorf("connect: %v", err)
		}
	})
	return c
}

type exit struct {
	kind  byte
	value int32
	text  string
}

// client speaks the protocol. Everything that comes is kept per stream.
type client struct {
	t       *testing.T
	f       *os.File
	wmu     sync.Mutex
	mu      sync.Mutex
	cond    *sync.Cond
	streams map[uint32]*testStream
	next    uint32
	pongs   []string
	stopped map[uint32]uint32
	hello   []byte
	lost    bool
	why     string // ERROR on stream 0
}

func newClient(t *testing.T, f *os.File) *client {
	t.Helper()
	c := &client{t: t, f: f, streams: map[uint32]*testStream{}, stopped: map[uint32]uint32{}}
	c.cond = sync.NewCond(&c.mu)
	t.Cleanup(func() { f.Close() })
	go c.read()
	c.await("hello", func() bool { return c.hello != nil })
	c.send(tHello, 0, newFrame(2).u16(1))
	return c
}

func (c *client) read() {
	for {
		head := make([]byte, headerSize)
		_, err := io.ReadFull(c.f, head)
		p := []byte(nil)
		if err == nil {
			p = make([]byte, binary.BigEndian.Uint32(head))
			_, err = io.ReadFull(c.f, p)
		}
		if err != nil {
			c.mu.Lock()
			c.lost = true
			c.cond.Broadcast()
			c.mu.Unlock()
			return
		}
		c.take(head[4], binary.BigEndian.Uint32(head[5:]), p)
	}
}

func (c *client) take(kind byte, id uint32, p []byte) {
	c.mu.Lock()
	d := decoder{b: p}
	s := c.streams[id]
	back := uint32(0)
	switch {
	case kind == rHello:
		c.hello = p
	case kind == rPong:
		c.pongs = append(c.pongs, string(p))
	case kind == rStopped:
		request := d.u32()
		c.stopped[request] = d.u32()
	case kind == rError && id == 0:
		c.why = d.str()
	case s == nil:
	case kind == rOut || kind == rErr:
		if kind == rOut {
			s.out = append(s.out, p...)
		} else {
			s.errs = append(s.errs, p...)
		}
		if s.exit != nil {
			s.afterExits++
		}
		s.frames++
		if !s.stall {
			back = uint32(len(p))
		}
	case kind == rOutEOF:
		s.ended[d.u8()] = true
	case kind == rCredit:
		s.credit += int(d.u32())
	case kind == rStarted:
		s.pid = int(d.u32())
	case kind == rOpened:
		s.opened = p
	case kind == rTree:
		s.tree = true
	case kind == rKilled:
		s.killed[d.u32()] = [3]uint32{d.u32(), d.u32(), d.u32()}
	case kind == rError:
		s.errText = d.str()
	case kind == rExit:
		s.exit = &exit{d.u8(), int32(d.u32()), d.str()}
	}
	c.cond.Broadcast()
	c.mu.Unlock()
	if back > 0 {
		c.send(tCredit, id, newFrame(4).u32(back))
	}
}

// await waits until ok, which is called under the lock, or fails the test.
func (c *client) await(what string, ok func() bool) {
	c.t.Helper()
	late := false
	timer := time.AfterFunc(patience, func() {
		c.mu.Lock()
		late = true
		c.cond.Broadcast()
		c.mu.Unlock()
	})
	defer timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !ok() {
		if late || c.lost {
			c.t.Fatalf("waiting for %s: late %v, connection lost %v (%s)", what, late, c.lost, c.why)
		}
		c.cond.Wait()
	}
}

// awaitLost waits until the guest has closed the connection, and returns its reason.
func (c *client) awaitLost() string {
	c.t.Helper()
	gone := false
	c.awaitEnd(&gone)
	return c.why
}

func (c *client) awaitEnd(gone *bool) {
	c.t.Helper()
	timer := time.AfterFunc(patience, func() { c.t.Error("the connection is still open"); c.f.Close() })
	defer timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.lost {
		c.cond.Wait()
	}
	*gone = true
}

// send does not fail when the connection has gone: await tells.
func (c *client) send(kind byte, id uint32, e encoder) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	_, _ = c.f.Write(e.seal(kind, id))
}
