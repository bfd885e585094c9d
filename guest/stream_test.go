package main

import (
	"strings"
	"syscall"
)

// testStream is what came on one stream.
type testStream struct {
	c          *client
	id         uint32
	stall      bool // give no credit back
	out, errs  []byte
	frames     int
	pid        int
	exit       *exit
	ended      map[byte]bool // OUTEOF
	tree       bool
	killed     map[uint32][3]uint32
	opened     []byte
	credit     int
	errText    string
	afterExits int // frames of output after EXIT
}

func (c *client) open(kind byte, e encoder) *testStream {
	c.mu.Lock()
	c.next++
	s := &testStream{c: c, id: c.next, ended: map[byte]bool{}, killed: map[uint32][3]uint32{}, credit: inputCredit}
	c.streams[s.id] = s
	c.mu.Unlock()
	c.send(kind, s.id, e)
	return s
}

type spec struct {
	argv   []string
	cwd    string
	env    []string
	stdin  bool
	credit uint32
	flags  byte
	rows   uint16
	cols   uint16
	stall  bool
}

const testPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func (sp spec) encode() encoder {
	if sp.credit == 0 {
		sp.credit = 256 << 10
	}
	if sp.env == nil {
		sp.env = []string{testPath}
	}
	if sp.stdin {
		sp.flags |= flagStdin
	}
	e := newFrame(100).u8(sp.flags).u16(sp.rows).u16(sp.cols).u32(sp.credit).str("").str(sp.cwd)
	for _, l := range [][]string{sp.argv, sp.env} {
		e = e.u32(uint32(len(l)))
		for _, v := range l {
			e = e.str(v)
		}
	}
	return e
}

func (c *client) start(sp spec) *testStream {
	s := c.open(tStart, sp.encode())
	if sp.stall {
		c.mu.Lock()
		s.stall = true
		c.mu.Unlock()
	}
	return s
}

func (c *client) sh(script string) *testStream {
	return c.start(spec{argv: []string{"sh", "-c", script}})
}

func (s *testStream) await(what string, ok func() bool) { s.c.t.Helper(); s.c.await(what, ok) }

func (s *testStream) wait() exit {
	s.c.t.Helper()
	s.await("exit", func() bool { return s.exit != nil })
	return *s.exit
}

func (s *testStream) waitStarted() int {
	s.c.t.Helper()
	s.await("start", func() bool { return s.pid != 0 })
	return s.pid
}

// waitOut waits for a piece of stdout and returns all of it.
func (s *testStream) waitOut(piece string) string {
	s.c.t.Helper()
	s.await("output "+piece, func() bool { return strings.Contains(string(s.out), piece) })
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return string(s.out)
}

func (s *testStream) waitError() string {
	s.c.t.Helper()
	s.await("ERROR", func() bool { return s.errText != "" })
	return s.errText
}

// write sends DATA within the credit, until the stream has ended.
func (s *testStream) write(p []byte) {
	s.c.t.Helper()
	for len(p) > 0 {
		s.await("credit", func() bool { return s.credit > 0 || s.exit != nil })
		s.c.mu.Lock()
		n := min(len(p), s.credit, maxFrame)
		s.credit -= n
		over := s.exit != nil
		s.c.mu.Unlock()
		if over {
			return
		}
		s.c.send(tData, s.id, newFrame(n).raw(string(p[:n])))
		p = p[n:]
	}
}

func (s *testStream) eof() { s.c.send(tEOF, s.id, newFrame(0)) }

func (s *testStream) release() { s.c.send(tRelease, s.id, newFrame(0)) }

func (s *testStream) kill(sig syscall.Signal, scope byte) (rounds, killed, left uint32) {
	s.c.t.Helper()
	s.c.mu.Lock()
	request := uint32(len(s.killed) + 1)
	s.c.mu.Unlock()
	s.c.send(tKill, s.id, newFrame(6).u32(request).u8(byte(sig)).u8(scope))
	s.await("KILLED", func() bool { _, ok := s.killed[request]; return ok })
	k := s.killed[request]
	return k[0], k[1], k[2]
}

func (c *client) stopAll() uint32 {
	c.t.Helper()
	c.mu.Lock()
	c.next++
	request := c.next
	c.mu.Unlock()
	c.send(tStopAll, 0, newFrame(4).u32(request))
	c.await("STOPPED", func() bool { _, ok := c.stopped[request]; return ok })
	return c.stopped[request]
}

func (c *client) ping() {
	c.t.Helper()
	c.mu.Lock()
	n := len(c.pongs)
	c.mu.Unlock()
	c.send(tPing, 0, newFrame(8).raw("12345678"))
	c.await("PONG", func() bool { return len(c.pongs) > n })
}
