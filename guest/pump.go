package main

import (
	"os"
	"syscall"
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

// growPipe is for a pipe that was full. The kernel may refuse: all pipes of a user share a limit.
func growPipe(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, largePipe) })
}

const (
	firstPipe = 64 << 10 // as it is made
	largePipe = 256 << 10
)

// feed moves the inbox to stdin.
func (k *command) feed() {
	defer k.c.g.fds.put(1)
	defer k.stdin.Close()
	raw := rawConn(k.stdin)
	k.in.passBy(k.writeNow)
	for {
		chunk, more, ok := k.in.pop()
		if !ok || !more {
			return
		}
		if err := k.c.g.lingering.write(raw, chunk); err != nil { // the reader has gone
			k.in.abandon()
		} else {
			k.in.consumed(len(chunk))
		}
		k.c.sendCredit(k.id, k.in.grant())
	}
}

// writeNow writes to stdin what goes there without waiting. What fails is left to feed.
func (k *command) writeNow(p []byte) (n int) {
	raw := rawConn(k.stdin)
	_ = raw.Control(func(fd uintptr) { n, _ = unix.Write(int(fd), p) })
	if n < len(p) && !k.full {
		k.full = true
		growPipe(raw)
	}
	return max(n, 0)
}

// output moves one pipe to the connection. It holds no memory of its own: data is read only when it may be sent, straight
// into the connection's frame.
type output struct {
	k        *command
	kind     byte
	f        *os.File
	raw      syscall.RawConn
	flowing  bool          // it filled its pipe at least once
	moved    uint64        // bytes sent; under conn.wmu
	eof      bool          // under conn.wmu
	progress chan struct{} // filled after each change of the two
}

func newOutput(k *command, kind byte, f *os.File) *output {
	return &output{k: k, kind: kind, f: f, raw: rawConn(f), progress: make(chan struct{}, 1)}
}

func rawConn(f syscall.Conn) syscall.RawConn {
	raw, err := f.SyscallConn()
	if err != nil {
		panic(err) // only for a nil file
	}
	return raw
}

func (o *output) run() {
	defer o.k.c.g.fds.put(1)
	defer o.f.Close()
	c := o.k.c
	for {
		if !o.readable() {
			break
		}
		n, more, stalled := o.move()
		if !more {
			break
		}
		if stalled && n == 0 && !o.k.window.wait(1, c.gone) {
			o.discard() // released, or the connection has gone
			break
		}
	}
	if !o.k.isReleased() {
		c.post(rOutEOF, o.k.id, newFrame(1).u8(o.kind))
	}
	c.wmu.Lock()
	o.eof = true
	c.wmu.Unlock()
	o.noteProgress()
}

// readable waits until there is something to read; false at the end of the output.
func (o *output) readable() bool {
	data := false
	err := o.raw.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if !o.k.c.g.lingering.poll(p, o.flowing) {
			return false
		}
		data = p[0].Revents&unix.POLLIN != 0
		return true
	})
	return err == nil && data
}

// move sends what is there and may be sent.
func (o *output) move() (n int, more, stalled bool) {
	c := o.k.c
	c.wmu.Lock()
	defer c.wmu.Unlock()
	allowed := o.k.window.take(maxFrame)
	if allowed == 0 {
		return 0, true, true
	}
	n, err := o.read(c.room(allowed))
	o.k.window.giveBack(allowed - max(n, 0))
	if n <= 0 {
		return 0, err == syscall.EAGAIN || err == syscall.EINTR, false
	}
	c.write(encoder(c.wbuf[:headerSize+n]).seal(o.kind, o.k.id))
	o.moved += uint64(n)
	o.noteProgress()
	if n >= firstPipe && !o.flowing {
		o.flowing = true
		growPipe(o.raw)
	}
	return n, true, false
}

// read does not wait.
func (o *output) read(buf []byte) (n int, err error) {
	failed := o.raw.Control(func(fd uintptr) { n, err = syscall.Read(int(fd), buf) })
	if failed != nil {
		return 0, failed
	}
	return n, err
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

// pending says how many bytes are in the pipe.
func (o *output) pending() int {
	n := 0
	_ = o.raw.Control(func(fd uintptr) { // fails if it is closed: then nothing is
		if v, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil {
			n = v
		}
	})
	return n
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
