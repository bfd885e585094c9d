package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func FuzzFrameReader(f *testing.F) {
	f.Add([]byte(newFrame(2).u16(1).seal(tHello, 0)))
	f.Add([]byte(spec{argv: []string{"sh", "-c", "true"}}.encode().seal(tStart, 1)))
	f.Add(append([]byte(newFrame(0).seal(tEOF, 1)), newFrame(0).raw("data").seal(tData, 2)...))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 3, 0, 0, 0, 1})
	f.Add([]byte{0, 0x10, 0, 1, tStart, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := newFrameReader(bytes.NewReader(b))
		var again []byte
		for {
			fr, err := r.next()
			if err != nil {
				var bad protocolError
				if !errors.As(err, &bad) && err != io.EOF && err != io.ErrUnexpectedEOF {
					t.Fatal(err)
				}
				break
			}
			if len(fr.payload) > maxFrame && (fr.kind != tStart || len(fr.payload) > maxStart) {
				t.Fatalf("type %x of %d bytes", fr.kind, len(fr.payload))
			}
			again = append(again, newFrame(0).raw(string(fr.payload)).seal(fr.kind, fr.stream)...)
		}
		if !bytes.HasPrefix(b, again) {
			t.Fatal("what was read is not what was sent")
		}
	})
}

func FuzzDecodeStart(f *testing.F) {
	for _, sp := range []spec{
		{argv: []string{"true"}}, {argv: []string{"a", "", "\xff"}, env: []string{"A=1", ""}, cwd: "/", stdin: true}, {argv: []string{"a\x00b"}}, {}, {argv: []string{"x"}, flags: 1},
	} {
		f.Add([]byte(sp.encode()[headerSize:]))
	}
	f.Add([]byte(newFrame(0).u8(0).u32(0).u32(0).str("").str("").u32(0xffffffff)[headerSize:]))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeStart(b)
		if err != nil {
			return
		}
		if len(s.argv) == 0 || len(s.argv)+len(s.env) > len(b)/4 {
			t.Fatalf("%d arguments and %d variables from %d bytes", len(s.argv), len(s.env), len(b))
		}
		for _, v := range append(append([]string{s.cwd}, s.argv...), s.env...) {
			if strings.ContainsRune(v, 0) {
				t.Fatalf("%q", v)
			}
		}
		again, err := decodeStart(spec{argv: s.argv, env: append([]string{}, s.env...), cwd: s.cwd, stdin: s.stdin, credit: max(s.credit, 1)}.encode()[headerSize:])
		if err != nil || strings.Join(again.argv, "\x00") != strings.Join(s.argv, "\x00") || again.cwd != s.cwd || again.stdin != s.stdin {
			t.Fatalf("%+v, then %+v (%v)", s, again, err)
		}
	})
}

// FuzzCredit plays a client against several inboxes of one pool. Each step is two bytes: what, and how much.
func FuzzCredit(f *testing.F) {
	f.Add([]byte("\x00\xff\x01\xff\x02\xff\x03\xff\x04\x00\x05\x00\x06\x10\x07\x20"))
	f.Add(bytes.Repeat([]byte{0, 255, 8, 1, 16, 0}, 50))
	f.Add(bytes.Repeat([]byte{0, 1, 1, 1, 2, 2, 3, 3, 24, 0, 0, 255}, 30))
	f.Fuzz(func(t *testing.T, steps []byte) {
		const streams = 8
		var p pool
		var boxes [streams]*inbox
		var allowed, sent, got [streams]int // as the client and the consumer count
		for i := range boxes {
			boxes[i] = newInbox(&p, []int{inputWindow / 4, inputWindow}[i%2])
			allowed[i] = inputCredit
		}
		for ; len(steps) >= 2; steps = steps[2:] {
			i, n := int(steps[0]%streams), int(steps[1])<<8
			b := boxes[i]
			switch steps[0] / streams % 4 {
			case 0, 1: // send, perhaps too much
				n = min(n+1, maxFrame)
				err := b.push(make([]byte, n))
				if (err != nil) != (n > allowed[i]) {
					t.Fatalf("%d bytes of %d: %v", n, allowed[i], err)
				}
				if err != nil {
					continue
				}
				allowed[i] -= n
				sent[i] += n
			case 2: // consume
				if len(b.chunks) > 0 {
					chunk, _, _ := b.pop()
					got[i] += len(chunk)
					b.consumed(len(chunk))
				}
				if n%2 == 0 && b.dead {
					b.abandon()
				}
			case 3: // start anew
				b.close()
				boxes[i] = newInbox(&p, b.max)
				allowed[i], sent[i], got[i] = inputCredit, 0, 0
				if n%3 == 0 { // with a consumer that takes half of what comes at once
					boxes[i].passBy(func(p []byte) int {
						got[i] += len(p) / 2
						return len(p) / 2
					})
				}
			}
			allowed[i] += int(boxes[i].grant())
			total, memory := 0, 0
			for j, b := range boxes {
				total += b.credit + b.held
				for _, c := range b.chunks {
					memory += cap(c)
				}
				if b.credit != allowed[j] || b.held != sent[j]-got[j] || b.credit+b.held > b.max || b.credit+b.held > inputCredit+b.drawn {
					t.Fatalf("stream %d: credit %d (client %d), held %d (%d), drawn %d", j, b.credit, allowed[j], b.held, sent[j]-got[j], b.drawn)
				}
				if b.held == 0 && b.credit == 0 {
					t.Fatalf("stream %d can never send again", j)
				}
			}
			if p.used < 0 || p.used > poolSize || total > creditSum || memory > 2*creditSum {
				t.Fatalf("pool %d, sum %d, memory %d", p.used, total, memory)
			}
		}
		for _, b := range boxes {
			b.close()
		}
		if p.used != 0 {
			t.Fatalf("%d were not given back", p.used)
		}
	})
}

func FuzzWindow(f *testing.F) {
	f.Add([]byte{0, 255, 1, 3, 2, 1, 0, 255})
	f.Fuzz(func(t *testing.T, steps []byte) {
		var w window
		left, taken := 0, 0
		for ; len(steps) >= 2; steps = steps[2:] {
			n := int(steps[1]) << (steps[0] >> 2 % 24)
			switch steps[0] % 4 {
			case 0, 1:
				err := w.add(uint32(n))
				if (err != nil) != (left+n > maxWindow) {
					t.Fatalf("%d + %d: %v", left, n, err)
				}
				if err == nil {
					left += n
				}
			case 2:
				got := w.take(n)
				if got != min(n, left) {
					t.Fatalf("took %d of %d, wanted %d", got, left, n)
				}
				left -= got
				taken += got
			case 3:
				back := min(n, taken)
				w.giveBack(back)
				left, taken = left+back, 0
			}
			if int(w.left) != left {
				t.Fatalf("%d, not %d", w.left, left)
			}
		}
	})
}

// FuzzResolve compares both resolvers on a hostile tree, and checks that nothing outside is ever opened.
func FuzzResolve(f *testing.F) {
	dir := f.TempDir()
	hostileTree(f, dir)
	fast, err := newWorkspace(dir)
	if err != nil {
		f.Fatal(err)
	}
	slow := &workspace{dir: fast.dir, asIs: fast.asIs, root: fast.root, walk: true}
	for _, p := range []string{"", "in", "d/../dlink/x", "/etc", "out", "../..", "abs/", "a\x00", "loop", "fifo", ".//.", "magicless", "\xff", dir + "/rel", "outdir/../in"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if strings.Contains(p, "magic") { // a walk follows magic links by their text
			return
		}
		compareWalk(t, fast, slow, p)
	})
}
