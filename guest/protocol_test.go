package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestHelloTellsTheTerms(t *testing.T) {
	g, c := startGuest(t)
	d := decoder{b: c.hello}
	low, high, id, pid := d.u16(), d.u16(), d.str(), d.u32()
	d.u32()
	streams, credit := d.u32(), d.u32()
	if d.end() != nil || low != 1 || high != 1 || len(id) != 32 || int(pid) != g.cmd.Process.Pid || streams != 512 || credit != inputCredit {
		t.Errorf("%q", c.hello)
	}
	other := decoder{b: g.connect().hello}
	other.u32()
	if other.str() != id {
		t.Error("the boot id is not the same on every connection")
	}
}

func TestViolationsCloseTheConnection(t *testing.T) {
	g, _ := startGuest(t)
	raw := func(length uint32, kind byte) encoder { return newFrame(0).u32(length).u8(kind).u32(1) }
	cases := map[string]func(c *client){
		"hello twice":     func(c *client) { c.send(tHello, 0, newFrame(2).u16(1)) },
		"stream 0":        func(c *client) { c.send(tStat, 0, newFrame(4).str("")) },
		"unknown, 0":      func(c *client) { c.send(0x7f, 0, newFrame(0)) },
		"bad ping":        func(c *client) { c.send(tPing, 0, newFrame(0).raw("123")) },
		"bad credit":      func(c *client) { c.send(tCredit, 1, newFrame(0).raw("123")) },
		"bad kill":        func(c *client) { c.send(tKill, 1, newFrame(0).raw("123")) },
		"bad stopall":     func(c *client) { c.send(tStopAll, 1, newFrame(4).u32(1)) },
		"huge":            func(c *client) { _, _ = c.f.Write(raw(0xffffffff, tData)[headerSize:]) },
		"long":            func(c *client) { _, _ = c.f.Write(raw(maxFrame+1, tStat)[headerSize:]) },
		"long start":      func(c *client) { _, _ = c.f.Write(raw(maxStart+1, tStart)[headerSize:]) },
		"past the credit": func(c *client) { s := c.start(spec{argv: []string{"sleep", "1000"}, stdin: true}); s.flood() },
		"past the window": func(c *client) { s := c.open(tWrite, newFrame(0).u32(0o644).str("big")); s.credit = 1 << 30; s.flood() },
		"data without":    func(c *client) { s := c.sh("sleep 1000"); c.send(tData, s.id, newFrame(0).raw("x")) },
		"empty data": func(c *client) {
			s := c.start(spec{argv: []string{"cat"}, stdin: true})
			c.send(tData, s.id, newFrame(0))
		},
		"data after eof": func(c *client) {
			s := c.start(spec{argv: []string{"cat"}, stdin: true})
			c.send(tEOF, s.id, newFrame(0))
			c.send(tEOF, s.id, newFrame(0))
		},
		"credit overflow": func(c *client) { s := c.sh("sleep 1000"); c.send(tCredit, s.id, newFrame(4).u32(0xffffffff)) },
		"first credit":    func(c *client) { c.start(spec{argv: []string{"true"}, credit: maxWindow + 1}) },
		"stream is open":  func(c *client) { s := c.sh("sleep 1000"); c.send(tStat, s.id, newFrame(4).str("")) },
		"release payload": func(c *client) { s := c.sh("sleep 1000"); c.send(tRelease, s.id, newFrame(0).raw("x")) },
	}
	for name, violate := range cases {
		t.Run(name, func(t *testing.T) {
			c := g.connect()
			c.t = t
			violate(c)
			if why := c.awaitLost(); why == "" {
				t.Error("no ERROR on stream 0")
			}
		})
	}
}

// flood sends DATA without asking for credit. A full window is never given, because the consumer does not read (sleep) or
// cannot be faster than this writer.
func (s *testStream) flood() {
	for range 2000 {
		s.c.send(tData, s.id, newFrame(0).raw(strings.Repeat("x", maxFrame)))
	}
}

func TestHelloComesFirstAndFits(t *testing.T) {
	g, _ := startGuest(t)
	for name, first := range map[string]encoder{
		"version 0": newFrame(2).u16(0).seal(tHello, 0),
		"version 2": newFrame(2).u16(2).seal(tHello, 0),
		"short":     newFrame(2).u8(1).seal(tHello, 0),
		"ping":      newFrame(8).u64(1).seal(tPing, 0),
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := socketPair(t)
			cmd := role("connect", g.socket)
			cmd.Stdin, cmd.Stdout = theirs, theirs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			theirs.Close()
			defer ours.Close()
			if _, err := ours.Write(first); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil { // ends when the guest closes
				t.Fatal(err)
			}
		})
	}
}

func TestRefusedFramesLeaveTheConnectionAlone(t *testing.T) {
	_, c := startGuest(t)
	for name, s := range map[string]*testStream{
		"unknown type":   c.open(0x7f, newFrame(0)),
		"reserved":       c.open(0x17, newFrame(0)),
		"lasting pty":    c.start(spec{argv: []string{"true"}, flags: flagLasting | flagPty}),
		"detached":       c.start(spec{argv: []string{"true"}, flags: 2}),
		"unknown flag":   c.start(spec{argv: []string{"true"}, flags: 0x40}),
		"no arguments":   c.start(spec{}),
		"NUL":            c.start(spec{argv: []string{"a\x00b"}}),
		"short start":    c.open(tStart, newFrame(0).u8(0)),
		"many arguments": c.open(tStart, newFrame(0).u8(0).u32(0).u32(0).str("").str("").u32(0xffffffff)),
		"long string":    c.open(tStat, newFrame(0).u32(0xffffffff).raw("x")),
		"left over":      c.open(tStat, newFrame(0).str("a").raw("x")),
	} {
		if s.waitError() == "" {
			t.Errorf("%s: no reason", name)
		}
	}
	if got := c.sh("exit 2").wait(); got != (exit{0, 2, ""}) {
		t.Errorf("%+v", got)
	}
}

func TestFramesOfEverySizeInEverySplit(t *testing.T) {
	var sent []byte
	sizes := []int{0, 1, 100, firstBuffer - headerSize, firstBuffer, 7, maxFrame - 1, maxFrame, maxFrame, 3, maxFrame}
	for i, n := range sizes {
		sent = append(sent, newFrame(n).raw(strings.Repeat(string(rune('a'+i)), n)).seal(tData, uint32(i))...)
	}
	sent = append(sent, newFrame(0).raw(strings.Repeat("s", maxStart)).seal(tStart, 77)...)
	sent = append(sent, newFrame(0).seal(tEOF, 78)...)
	for name, reader := range map[string]io.Reader{
		"whole": bytes.NewReader(sent), "halves": iotest.HalfReader(bytes.NewReader(sent)),
		"bytes": iotest.OneByteReader(bytes.NewReader(sent)), "end with data": iotest.DataErrReader(bytes.NewReader(sent)),
	} {
		frames := newFrameReader(reader)
		for i, n := range sizes {
			f, err := frames.next()
			if err != nil || f.stream != uint32(i) || string(f.payload) != strings.Repeat(string(rune('a'+i)), n) {
				t.Fatalf("%s: frame %d has %d bytes (%v)", name, i, len(f.payload), err)
			}
		}
		if f, err := frames.next(); err != nil || f.kind != tStart || len(f.payload) != maxStart {
			t.Fatalf("%s: %v", name, err)
		}
		if f, err := frames.next(); err != nil || f.stream != 78 {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := frames.next(); err != io.EOF {
			t.Fatalf("%s: %v after the last frame", name, err)
		}
	}
}

func TestLateFramesAreIgnored(t *testing.T) {
	_, c := startGuest(t)
	s := c.start(spec{argv: []string{"no-such-program"}, stdin: true})
	s.wait()
	c.send(tData, s.id, newFrame(0).raw(strings.Repeat("x", maxFrame)))
	s.eof()
	c.send(tCredit, s.id, newFrame(4).u32(10))
	s.release()
	if rounds, killed, left := s.kill(9, scopeTree); rounds+killed+left != 0 {
		t.Error("something was killed")
	}
	c.ping()
}

func TestKillIsChecked(t *testing.T) {
	_, c := startGuest(t)
	for _, p := range []encoder{newFrame(6).u32(1).u8(0).u8(0), newFrame(6).u32(1).u8(65).u8(0), newFrame(6).u32(1).u8(9).u8(2)} {
		s := c.sh("sleep 1000")
		c.send(tKill, s.id, p)
		s.waitError()
	}
	file := c.open(tWrite, newFrame(0).u32(0o644).str("f"))
	c.send(tKill, file.id, newFrame(6).u32(1).u8(9).u8(1))
	file.waitError()
}

func TestStreamsAreBounded(t *testing.T) {
	_, c := startGuest(t)
	var all []*testStream
	for i := range maxStreams {
		all = append(all, c.open(tWrite, newFrame(0).u32(0o644).str(fmt.Sprint("f", i))))
	}
	one := c.open(tStat, newFrame(0).str(""))
	one.waitError()
	for _, s := range all { // each has room for its first credit, whatever the others were given
		c.send(tData, s.id, newFrame(0).raw(strings.Repeat("x", inputCredit)))
		s.eof()
		if got := s.wait(); got.kind != kindDone {
			t.Fatalf("%+v", got)
		}
	}
	if got := c.open(tStat, newFrame(0).str("")).wait(); got.kind != kindDone {
		t.Errorf("%+v", got)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	g, c := startGuest(t)
	var others []*client
	for range maxConnections - 1 {
		others = append(others, g.connect())
	}
	ours, theirs := socketPair(t)
	defer ours.Close()
	cmd := role("connect", g.socket)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, nil
	if err := cmd.Run(); err == nil {
		t.Error("one too many was let in")
	}
	theirs.Close()
	for _, o := range append(others, c) {
		if got := o.sh("exit 3").wait(); got != (exit{0, 3, ""}) {
			t.Errorf("%+v", got)
		}
	}
}
