package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	minVersion = 1
	maxVersion = 1

	headerSize = 9
	maxFrame   = 256 << 10 // payload of every frame but START, OUT and ERR
	maxOutput  = 512 << 10 // of OUT and ERR
	maxStart   = 1 << 20
	maxStreams = 512
)

// frame types from the client
const (
	tHello   = 0x01
	tStart   = 0x02
	tData    = 0x03
	tEOF     = 0x04
	tCredit  = 0x05
	tResize  = 0x06
	tKill    = 0x07
	tStat    = 0x10
	tList    = 0x11
	tRead    = 0x12
	tWrite   = 0x13
	tMkdir   = 0x14
	tRemove  = 0x15
	tRename  = 0x16
	tPing    = 0x20
	tRelease = 0x21
	tStopAll = 0x22
)

// frame types from the guest
const (
	rHello   = 0x81
	rStarted = 0x82
	rOut     = 0x83
	rErr     = 0x84
	rOutEOF  = 0x85
	rCredit  = 0x86
	rExit    = 0x87
	rKilled  = 0x88
	rOpened  = 0x8a
	rTree    = 0x8b
	rError   = 0x8f
	rPong    = 0xa0
	rStopped = 0xa2
)

// kinds of EXIT
const (
	kindDone          = 0
	kindSignal        = 1
	kindNotFound      = 2
	kindNotExecutable = 3
	kindBadCwd        = 4
	kindLimit         = 5
	kindOther         = 6
	kindFailed        = 7
	kindOutside       = 8
	kindNotRegular    = 9
	kindStopped       = 10
)

type frame struct {
	kind    byte
	stream  uint32
	payload []byte // valid until the next frame is read
}

// frameReader reads as many frames at once as there are; only a START longer than its buffer is given memory of its own.
type frameReader struct {
	r          io.Reader
	buf        []byte
	begin, end int // what was read and not returned
}

const (
	firstBuffer = 64 << 10
	largeBuffer = headerSize + maxFrame // holds any frame
)

func newFrameReader(r io.Reader) *frameReader {
	return &frameReader{r: r, buf: make([]byte, firstBuffer)}
}

// next returns a protocolError for a frame that is too long, and the reader's error otherwise.
func (f *frameReader) next() (frame, error) {
	if err := f.need(headerSize); err != nil {
		return frame{}, err
	}
	head := f.take(headerSize)
	n := binary.BigEndian.Uint32(head)
	fr := frame{kind: head[4], stream: binary.BigEndian.Uint32(head[5:])}
	switch {
	case n <= maxFrame:
		if err := f.need(int(n)); err != nil {
			return fr, endWithin(err)
		}
		fr.payload = f.take(int(n))
	case n <= maxStart && fr.kind == tStart:
		fr.payload = make([]byte, n)
		have := copy(fr.payload, f.take(min(int(n), f.end-f.begin)))
		_, err := io.ReadFull(f.r, fr.payload[have:])
		return fr, endWithin(err)
	default:
		return fr, protocolError(fmt.Sprintf("frame 0x%02x of %d bytes is too long", fr.kind, n))
	}
	return fr, nil
}

func (f *frameReader) take(n int) []byte {
	f.begin += n
	return f.buf[f.begin-n : f.begin]
}

// need reads until n bytes are there. It returns io.EOF only when there is nothing.
func (f *frameReader) need(n int) error {
	if f.end-f.begin >= n {
		return nil
	}
	rest := f.buf[f.begin:f.end]
	if n > len(f.buf) || f.end == len(f.buf) && len(f.buf) < largeBuffer { // filled, it is too small for what comes
		f.buf = make([]byte, largeBuffer)
	}
	f.begin, f.end = 0, copy(f.buf, rest)
	for f.end < n {
		got, err := f.r.Read(f.buf[f.end:])
		f.end += got
		if err != nil && f.end < n {
			if f.end > 0 {
				return endWithin(err)
			}
			return err
		}
	}
	return nil
}

// endWithin is how the end of the input is called in the middle of a frame.
func endWithin(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// protocolError is a violation after which the connection is closed.
type protocolError string

func (e protocolError) Error() string { return string(e) }

var errShort = errors.New("malformed payload")

// decoder takes a payload apart. After the first failure every result is zero and err is set.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) take(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.b) {
		d.err = errShort
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) u8() byte {
	if v := d.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if v := d.take(2); v != nil {
		return binary.BigEndian.Uint16(v)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if v := d.take(4); v != nil {
		return binary.BigEndian.Uint32(v)
	}
	return 0
}

func (d *decoder) str() string {
	n := d.u32()
	if uint64(n) > uint64(len(d.b)) {
		d.err = errShort
		return ""
	}
	return string(d.take(int(n)))
}

func (d *decoder) strs() []string {
	n := d.u32()
	if uint64(n) > uint64(len(d.b)/4) { // checked before anything is allocated
		d.err = errShort
		return nil
	}
	v := make([]string, 0, n)
	for range n {
		v = append(v, d.str())
	}
	return v
}

// end fails if bytes are left over.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.err = errShort
	}
	return d.err
}

// encoder builds a frame; the header is filled in by conn.send.
type encoder []byte

func newFrame(size int) encoder { return make(encoder, headerSize, headerSize+size) }

func (e encoder) u8(v byte) encoder    { return append(e, v) }
func (e encoder) u16(v uint16) encoder { return binary.BigEndian.AppendUint16(e, v) }
func (e encoder) u32(v uint32) encoder { return binary.BigEndian.AppendUint32(e, v) }
func (e encoder) u64(v uint64) encoder { return binary.BigEndian.AppendUint64(e, v) }
func (e encoder) raw(v string) encoder { return append(e, v...) }
func (e encoder) str(v string) encoder { return e.u32(uint32(len(v))).raw(v) }

// seal writes the header in front of the payload.
func (e encoder) seal(kind byte, stream uint32) []byte {
	binary.BigEndian.PutUint32(e, uint32(len(e)-headerSize))
	e[4] = kind
	binary.BigEndian.PutUint32(e[5:], stream)
	return e
}

// start is the payload of START.
type start struct {
	stdin      bool
	pty        bool
	lasting    bool
	rows, cols uint16 // of the pty
	credit     uint32
	cwd        string
	argv, env  []string
	size       int
}

const (
	flagPty     = 1
	flagStdin   = 4
	flagLasting = 8
)

// decodeStart checks everything that can be told without looking at the sandbox.
func decodeStart(p []byte) (start, error) {
	d := decoder{b: p}
	flags := d.u8()
	s := start{pty: flags&flagPty != 0, lasting: flags&flagLasting != 0, stdin: flags&(flagStdin|flagPty) != 0, size: len(p)}
	s.rows, s.cols, s.credit = d.u16(), d.u16(), d.u32()
	d.str() // the id belongs to detached commands
	s.cwd, s.argv, s.env = d.str(), d.strs(), d.strs()
	if err := d.end(); err != nil {
		return s, err
	}
	if flags&^(flagPty|flagStdin|flagLasting) != 0 || s.lasting && s.stdin {
		return s, fmt.Errorf("unsupported START flags 0x%02x", flags)
	}
	if len(s.argv) == 0 {
		return s, errors.New("empty argument list")
	}
	for _, l := range [][]string{{s.cwd}, s.argv, s.env} {
		for _, v := range l {
			if hasNUL(v) {
				return s, errors.New("NUL byte in an argument, the environment or the working directory")
			}
		}
	}
	return s, nil
}
