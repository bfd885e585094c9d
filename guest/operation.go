package main

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// operation is one stream that works on files.
type operation struct {
	c      *conn
	id     uint32
	window window
	in     *inbox // of WRITE

	cancelled chan struct{}
	cancel    sync.Once
}

// startOperation decodes the frame; the work is done by a goroutine of its own.
func (c *conn) startOperation(f frame) error {
	o := &operation{c: c, id: f.stream, cancelled: make(chan struct{})}
	d := decoder{b: f.payload}
	work, credit := o.decode(f.kind, &d)
	if d.end() != nil {
		return refused("malformed frame")
	}
	if err := o.window.add(credit); err != nil {
		return err
	}
	if f.kind == tWrite {
		o.in = newInbox(&c.pool, inputWindow)
	}
	c.add(f.stream, o)
	if o.in != nil {
		c.sendCredit(o.id, o.in.grant())
	}
	go o.run(work)
	return nil
}

// decode returns the work, which answers the text of EXIT.
func (o *operation) decode(kind byte, d *decoder) (work func() (string, error), credit uint32) {
	files, as := o.c.g.files, o.c.g.identity
	only := func(f func() error) func() (string, error) {
		return func() (text string, err error) {
			as.do(func() { err = f() })
			return "", err
		}
	}
	switch kind {
	case tStat:
		path := d.str()
		work = func() (text string, err error) {
			var s status
			as.do(func() { s, err = files.stat(path) })
			return s.text(), err
		}
	case tList:
		credit = d.u32()
		path := d.str()
		work = func() (string, error) { return "", o.list(path) }
	case tRead:
		credit = d.u32()
		path := d.str()
		work = func() (string, error) { return o.read(path) }
	case tWrite:
		mode, path := d.u32(), d.str()
		work = func() (string, error) { return o.write(path, mode) }
	case tMkdir:
		mode, path := d.u32(), d.str()
		work = only(func() error { return files.mkdir(path, mode) })
	case tRemove:
		recursive, path := d.u8(), d.str()
		work = only(func() error { return files.remove(path, recursive != 0, o.isCancelled) })
	case tRename:
		from, to := d.str(), d.str()
		work = only(func() error { return files.rename(from, to) })
	}
	return work, credit
}

func (o *operation) run(work func() (string, error)) {
	var text string
	err := o.c.g.fds.take(operationFDs)
	if err == nil {
		text, err = work()
		o.c.g.fds.put(operationFDs)
	}
	o.c.remove(o.id)
	o.end()
	if err == nil {
		o.c.sendExit(o.id, kindDone, 0, text)
		return
	}
	var r refusal
	if errors.As(err, &r) {
		o.c.sendExit(o.id, r.kind, 0, r.text)
		return
	}
	o.c.sendExit(o.id, kindFailed, int32(asErrno(err)), err.Error())
}

func (o *operation) isCancelled() bool {
	select {
	case <-o.cancelled:
		return true
	default:
		return false
	}
}

func (o *operation) credit(n uint32) error { return o.window.add(n) }

func (o *operation) data(p []byte) error {
	if o.in == nil {
		return protocolError("DATA for an operation that takes none")
	}
	return o.in.push(p)
}

func (o *operation) eof() error {
	if o.in == nil {
		return protocolError("EOF for an operation that takes no DATA")
	}
	return o.in.pushEOF()
}

func (o *operation) release() error {
	o.end()
	return nil
}

// end cancels what still goes on.
func (o *operation) end() {
	o.cancel.Do(func() {
		close(o.cancelled)
		o.window.close()
		if o.in != nil {
			o.in.close()
		}
	})
}

func (o *operation) write(path string, mode uint32) (string, error) {
	files, as := o.c.g.files, o.c.g.identity
	var u *upload
	var err error
	as.do(func() { u, err = files.openWrite(path, mode) })
	if err != nil {
		return "", err
	}
	err = o.receive(u)
	var s status
	as.do(func() {
		if err != nil {
			u.abort()
		} else {
			s, err = u.commit()
		}
	})
	return s.text(), err
}

func (o *operation) receive(u *upload) error {
	for {
		chunk, more, ok := o.in.pop()
		switch {
		case !ok:
			return unix.ECANCELED
		case !more:
			return nil
		}
		if err := u.write(chunk); err != nil {
			return err
		}
		o.in.consumed(len(chunk))
		o.c.sendCredit(o.id, o.in.grant())
	}
}

func (o *operation) read(path string) (string, error) {
	files, as := o.c.g.files, o.c.g.identity
	var fd int
	var s status
	var err error
	as.do(func() { fd, s, err = files.openRead(path) })
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	o.c.send(rOpened, o.id, s.encode(newFrame(20)))
	for {
		n, err := o.readSome(fd)
		if err != nil {
			return "", err
		}
		if n == 0 {
			break
		}
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	return statusOf(&st).text(), err
}

// readSome sends one frame; 0 at the end of the file. The end needs no credit.
func (o *operation) readSome(fd int) (int, error) {
	if o.window.empty() {
		here, err := unix.Seek(fd, 0, io.SeekCurrent)
		if err != nil {
			return 0, err
		}
		if n, err := unix.Pread(fd, make([]byte, 1), here); n == 0 || err != nil {
			return 0, err
		}
	}
	if !o.window.wait(1, o.cancelled) {
		return 0, unix.ECANCELED
	}
	select {
	case o.c.slots <- struct{}{}:
		defer func() { <-o.c.slots }()
	case <-o.cancelled:
		return 0, unix.ECANCELED
	}
	allowed := o.window.take(maxFrame)
	buf := readBuffer.Get().(*[headerSize + maxFrame]byte)
	defer readBuffer.Put(buf)
	n, err := syscall.Read(fd, buf[headerSize:headerSize+allowed])
	o.window.giveBack(allowed - max(n, 0))
	if n > 0 {
		o.c.send(rOut, o.id, buf[:headerSize+n])
	}
	if err == syscall.EINTR {
		return 1, nil
	}
	return n, err
}

var readBuffer = sync.Pool{New: func() any { return new([headerSize + maxFrame]byte) }}

func (o *operation) list(path string) error {
	files, as := o.c.g.files, o.c.g.identity
	var dir *os.File
	var err error
	as.do(func() { dir, err = files.openDir(path) })
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		var entries []entry
		as.do(func() { entries, err = readEntries(dir) })
		for len(entries) > 0 {
			n, err := o.sendEntries(entries)
			if err != nil {
				return err
			}
			entries = entries[n:]
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

const entryHead = 22

// sendEntries sends one frame of whole entries, as many as the credit allows, and says how many.
func (o *operation) sendEntries(entries []entry) (int, error) {
	if !o.window.wait(uint32(entryHead+len(entries[0].name)), o.cancelled) {
		return 0, unix.ECANCELED
	}
	allowed := o.window.take(maxFrame)
	frame, n := newFrame(min(allowed, 8<<10)), 0
	for _, e := range entries {
		if len(frame)-headerSize+entryHead+len(e.name) > allowed {
			break
		}
		frame = e.encode(frame).u16(uint16(len(e.name))).raw(e.name)
		n++
	}
	o.window.giveBack(allowed - (len(frame) - headerSize))
	o.c.send(rOut, o.id, frame)
	return n, nil
}
