package main

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pipes of a command; the other ends are the child's.
type pipes struct {
	stdin, stdout, stderr *os.File // stdin is nil if it is /dev/null
	children              [3]*os.File
	budget                *budget
	taken                 int // of the budget, until the three are closed
}

func (k *command) openPipes() (*pipes, error) {
	p := &pipes{budget: k.c.g.fds, taken: 2}
	if k.in != nil {
		p.taken++
	}
	err := p.budget.take(p.taken)
	if err != nil {
		return nil, err
	}
	if k.in != nil {
		p.children[0], p.stdin, err = os.Pipe()
	} else {
		p.children[0], err = os.Open(os.DevNull)
	}
	if err == nil {
		p.stdout, p.children[1], err = os.Pipe()
	}
	if err == nil {
		p.stderr, p.children[2], err = os.Pipe()
	}
	if err != nil {
		p.closeOurs()
		p.closeChildren()
		return nil, err
	}
	return p, nil
}

// files sets the child's ends to blocking mode, as programs expect (File.Fd does).
func (p *pipes) files() []uintptr {
	return []uintptr{p.children[0].Fd(), p.children[1].Fd(), p.children[2].Fd()}
}

func (p *pipes) closeOurs() {
	closeFiles(p.stdin, p.stdout, p.stderr)
	p.budget.put(p.taken)
}

func (p *pipes) closeChildren() { closeFiles(p.children[:]...) }

func closeFiles(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

const (
	firstPipe = 64 << 10 // as it is made
	largePipe = 512 << 10
)

// feed moves the inbox to stdin.
func (k *command) feed() {
	defer k.c.g.fds.put(1)
	defer k.stdin.close()
	k.in.passBy(k.writeNow)
	for {
		chunk, more, ok := k.in.pop()
		if !ok || !more {
			return
		}
		if err := k.stdin.write(chunk); err != nil { // the reader has gone
			k.in.abandon()
		} else {
			k.in.consumed(len(chunk))
		}
		k.c.sendCredit(k.id, k.in.grant())
	}
}

// writeNow writes to stdin what goes there without waiting. What fails is left to feed.
func (k *command) writeNow(p []byte) int {
	n := k.stdin.writeNow(p)
	if n < len(p) && !k.full {
		k.full = true
		k.stdin.grow()
	}
	return n
}

// output moves one pipe to the connection. It holds no memory of its own: data is read only when it may be sent, straight
// into the connection's frame.
type output struct {
	*file
	k        *command
	kind     byte
	moved    uint64        // bytes sent; under conn.wmu
	eof      bool          // under conn.wmu
	progress chan struct{} // filled after each change of the two
}

func newOutput(k *command, kind byte, f *os.File) *output {
	return &output{file: newFile(f, &k.c.g.lingering), k: k, kind: kind, progress: make(chan struct{}, 1)}
}

func (o *output) run() {
	defer o.k.c.g.fds.put(1)
	defer o.close()
	c := o.k.c
	for more, likely := true, false; more; {
		if !likely && !o.readable() {
			break
		}
		var n int
		var stalled bool
		n, more, stalled = o.move()
		if stalled && !o.k.window.wait(1, c.gone) {
			o.discard() // released, or the connection has gone
			break
		}
		likely = o.flowing && n >= firstPipe // without a look, one system call less
	}
	if !o.k.isReleased() {
		c.post(rOutEOF, o.k.id, newFrame(1).u8(o.kind))
	}
	c.wmu.Lock()
	o.eof = true
	c.wmu.Unlock()
	o.noteProgress()
}

// move sends what is there and may be sent.
func (o *output) move() (n int, more, stalled bool) {
	c := o.k.c
	c.wmu.Lock()
	defer c.wmu.Unlock()
	allowed := o.k.window.take(maxOutput)
	if allowed == 0 {
		return 0, true, true
	}
	n, err := o.read(c.room(allowed))
	o.k.window.giveBack(allowed - max(n, 0))
	if n <= 0 {
		return 0, err == unix.EAGAIN || err == unix.EINTR, false
	}
	c.write(encoder(c.wbuf[:headerSize+n]).seal(o.kind, o.k.id))
	o.moved += uint64(n)
	o.noteProgress()
	if n >= firstPipe && !o.flowing {
		o.flow(true)
		o.grow()
	}
	return n, true, false
}

// discard keeps programs that still write from blocking, until the connection has gone.
func (o *output) discard() {
	var buf []byte
	for !o.k.c.isGone() && o.readable() {
		if buf == nil {
			buf = make([]byte, 16<<10)
		}
		if n, err := o.read(buf); n == 0 && err == nil {
			return
		}
	}
}

func (o *output) noteProgress() {
	select {
	case o.progress <- struct{}{}:
	default:
	}
}

// reached waits until so many bytes have been sent.
func (o *output) reached(target uint64, deadline <-chan time.Time) bool {
	return o.until(func() bool { return o.moved >= target || o.eof }, deadline)
}

// ended waits for the end of the output.
func (o *output) ended(deadline <-chan time.Time) bool {
	return o.until(func() bool { return o.eof }, deadline)
}

// until asks under conn.wmu, after each progress.
func (o *output) until(reached func() bool, deadline <-chan time.Time) bool {
	for {
		o.k.c.wmu.Lock()
		ok := reached()
		o.k.c.wmu.Unlock()
		if ok {
			return true
		}
		select {
		case <-o.progress:
		case <-o.k.c.gone:
			return false
		case <-deadline:
			return false
		}
	}
}
