package main

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// conn is one connection: it owns its streams, and the subtrees of its commands, also of released ones.
type conn struct {
	g      *guest
	frames *frameReader
	out    *sink
	closer func()

	wmu     sync.Mutex  // one frame at a time
	wbuf    []byte      // see room; used under wmu
	posted  []byte      // frames that go out with the next one, or when deliver fires; under wmu
	deliver *time.Timer // runs while there are any

	gone     chan struct{} // closed when the connection is
	closing  sync.Once
	pool     pool
	slots    chan struct{} // buffers that READs of this connection may hold at once
	stopping atomic.Int32

	mu       sync.Mutex
	streams  map[uint32]stream
	commands map[*command]struct{}
}

// stream is a command or a file operation. All methods are called by the read loop; end by whoever ends the connection.
type stream interface {
	credit(n uint32) error
	data(p []byte) error
	eof() error
	release() error
	end()
}

// refused is answered by ERROR on the stream; the connection goes on.
type refused string

func (e refused) Error() string { return string(e) }

const (
	readBuffers = 4
	maxStopAlls = 16
	maxReason   = 1 << 10 // bytes of text in EXIT
	postTime    = 5 * time.Millisecond
	maxPosted   = 4 << 10 // bytes that are worth a copy to save a write
)

func newConn(g *guest, r readable, w *os.File, closer func()) *conn {
	c := &conn{
		g: g, frames: newFrameReader(newSource(r, &g.lingering)), out: newSink(w, &g.lingering), closer: closer,
		gone: make(chan struct{}), slots: make(chan struct{}, readBuffers),
		streams: map[uint32]stream{}, commands: map[*command]struct{}{},
	}
	c.deliver = time.AfterFunc(postTime, func() {
		c.wmu.Lock()
		defer c.wmu.Unlock()
		c.write(nil)
	})
	c.deliver.Stop() // until something is posted
	return c
}

func (c *conn) close() {
	c.closing.Do(func() {
		close(c.gone)
		c.out.close()
		c.closer()
	})
}

func (c *conn) isGone() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// send writes one frame. A failure closes the connection, so that nobody has to look at it.
func (c *conn) send(kind byte, id uint32, e encoder) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.write(e.seal(kind, id))
}

// post writes one frame with the next, or a moment later: every write wakes the client, and in a cluster all that is on the way to it.
func (c *conn) post(kind byte, id uint32, e encoder) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if len(c.posted) == 0 {
		c.deliver.Reset(postTime)
	}
	if c.posted = append(c.posted, e.seal(kind, id)...); len(c.posted) >= maxPosted {
		c.write(nil)
	}
}

// room is where n bytes of a frame's payload go, in wbuf behind the header. Called under wmu.
func (c *conn) room(n int) []byte {
	if len(c.wbuf) < headerSize+n {
		c.wbuf = make([]byte, max(headerSize+n, firstBuffer))
	}
	return c.wbuf[headerSize : headerSize+n]
}

// write sends what was posted, and b. It is called under wmu.
func (c *conn) write(b []byte) {
	if posted := c.posted; len(posted) > 0 {
		c.posted = posted[:0]
		c.deliver.Stop()
		if len(posted)+len(b) > maxPosted {
			c.write(posted)
		} else {
			b = append(posted, b...)
		}
	}
	if len(b) > 0 && c.out.write(b) != nil {
		c.close()
	}
}

func (c *conn) sendExit(id uint32, kind byte, value int32, text string) {
	if len(text) > maxReason {
		text = text[:maxReason]
	}
	c.send(rExit, id, newFrame(9+len(text)).u8(kind).u32(uint32(value)).str(text))
}

func (c *conn) sendCredit(id uint32, n uint32) {
	if n > 0 {
		c.send(rCredit, id, newFrame(4).u32(n))
	}
}

func (c *conn) serve() {
	defer c.end()
	c.send(rHello, 0, newFrame(60).u16(minVersion).u16(maxVersion).str(c.g.bootID).
		u32(uint32(os.Getpid())).u32(uint32(os.Getuid())).u32(maxStreams).u32(inputCredit))
	greeted := false
	for {
		f, err := c.frames.next()
		if err == nil {
			if greeted {
				err = c.handle(f)
			} else {
				err = checkHello(f)
				greeted = true
			}
		}
		var no refused
		var bad protocolError
		switch {
		case err == nil:
		case errors.As(err, &no):
			c.send(rError, f.stream, newFrame(64).str(err.Error()))
		case errors.As(err, &bad):
			c.send(rError, 0, newFrame(64).str(err.Error()))
			return
		default: // the other side has gone
			return
		}
	}
}

func checkHello(f frame) error {
	d := decoder{b: f.payload}
	version := d.u16()
	if f.kind != tHello || f.stream != 0 || d.end() != nil {
		return protocolError("the first frame must be HELLO")
	}
	if version < minVersion || version > maxVersion {
		return protocolError(fmt.Sprintf("version %d is not spoken here", version))
	}
	return nil
}

func (c *conn) handle(f frame) error {
	switch f.kind {
	case tPing:
		if f.stream != 0 || len(f.payload) != 8 {
			return protocolError("bad PING")
		}
		c.send(rPong, 0, newFrame(8).raw(string(f.payload)))
		return nil
	case tStopAll:
		d := decoder{b: f.payload}
		request := d.u32()
		if f.stream != 0 || d.end() != nil {
			return protocolError("bad STOPALL")
		}
		return c.stopAll(request)
	case tHello:
		return protocolError("HELLO twice")
	}
	if f.stream == 0 {
		return protocolError(fmt.Sprintf("frame 0x%02x on stream 0", f.kind))
	}
	switch f.kind {
	case tStart, tStat, tList, tRead, tWrite, tMkdir, tRemove, tRename:
		return c.openStream(f)
	case tData, tEOF, tCredit, tKill, tRelease, tResize:
		return c.onStream(f)
	}
	return refused(fmt.Sprintf("unknown frame 0x%02x", f.kind))
}

// openStream registers the stream before anything else is read, so that DATA may follow at once.
func (c *conn) openStream(f frame) error {
	c.mu.Lock()
	_, taken := c.streams[f.stream]
	full := len(c.streams) >= maxStreams
	c.mu.Unlock()
	if taken {
		return protocolError(fmt.Sprintf("stream %d is open", f.stream))
	}
	if full {
		return refused("too many streams")
	}
	if f.kind == tStart {
		return c.startCommand(f)
	}
	return c.startOperation(f)
}

func (c *conn) add(id uint32, s stream) {
	c.mu.Lock()
	c.streams[id] = s
	c.mu.Unlock()
}

func (c *conn) remove(id uint32) {
	c.mu.Lock()
	delete(c.streams, id)
	c.mu.Unlock()
}

func (c *conn) onStream(f frame) error {
	c.mu.Lock()
	s := c.streams[f.stream]
	c.mu.Unlock()
	d := decoder{b: f.payload}
	switch f.kind {
	case tKill:
		k := killRequest{request: d.u32(), signal: d.u8(), scope: d.u8()}
		if d.end() != nil {
			return protocolError("bad KILL")
		}
		return c.kill(f.stream, s, k)
	case tData:
		if s != nil {
			return s.data(f.payload)
		}
	case tCredit:
		n := d.u32()
		if d.end() != nil {
			return protocolError("bad CREDIT")
		}
		if s != nil {
			return s.credit(n)
		}
	case tResize:
		rows, cols := d.u16(), d.u16()
		if d.end() != nil {
			return protocolError("bad RESIZE")
		}
		switch k := s.(type) {
		case nil:
		case *command:
			return k.resize(rows, cols)
		default:
			return refused("RESIZE of a file operation")
		}
	case tEOF, tRelease:
		switch {
		case len(f.payload) > 0:
			return protocolError("EOF and RELEASE carry nothing")
		case s == nil:
		case f.kind == tEOF:
			return s.eof()
		default:
			return s.release()
		}
	}
	return nil // for a stream that has just ended
}

func (c *conn) stopAll(request uint32) error {
	if c.stopping.Add(1) > maxStopAlls {
		return protocolError("too many STOPALL at once")
	}
	go c.g.stopAll(func(count int) {
		c.stopping.Add(-1)
		c.send(rStopped, 0, newFrame(8).u32(request).u32(uint32(count)))
	})
	return nil
}

// end closes the connection, its streams, and every process that it owns.
func (c *conn) end() {
	c.close()
	c.mu.Lock()
	streams := make([]stream, 0, len(c.streams))
	for _, s := range c.streams {
		streams = append(streams, s)
	}
	clear(c.streams)
	c.mu.Unlock()
	for _, s := range streams {
		s.end()
	}
	// Under this lock no command is between its look at c.gone and its fork.
	c.g.procs.spawning.Lock()
	c.mu.Lock()
	var children []*child
	for k := range c.commands {
		if k.child.tag != 0 && !k.lasting {
			children = append(children, k.child)
		}
	}
	c.mu.Unlock()
	c.g.procs.spawning.Unlock()
	if len(children) > 0 {
		c.g.sweeper.kill(children, false, func(int, int, int) {})
	}
}
