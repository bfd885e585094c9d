package main

import "sync"

// inbox queues the DATA of one stream. credit + held is always <= inputCredit + drawn, and drawn comes from the pool.
type inbox struct {
	pool *pool
	max  int // the window may grow to this

	mu     sync.Mutex
	cond   *sync.Cond
	direct func(p []byte) int // takes what it can without waiting; nil if nothing may pass by the queue
	chunks [][]byte
	held   int  // bytes that came and were not consumed
	credit int  // bytes that may still come
	drawn  int  // taken from the pool
	window int  // present target of credit + held; doubles while the client uses it up
	due    bool // the consumer has credit to send for what passed by it
	eof    bool
	dead   bool // the consumer has gone: drop, but keep crediting
	closed bool // the stream has gone
}

func newInbox(p *pool, maximum int) *inbox {
	b := &inbox{pool: p, max: maximum, credit: inputCredit, window: min(firstWindow, maximum)}
	b.cond = sync.NewCond(&b.mu)
	return b
}

const smallChunk = 4 << 10

// push takes DATA; it fails when the client sent more than it may, or after EOF.
func (b *inbox) push(p []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(p) == 0:
		return protocolError("empty DATA")
	case b.eof:
		return protocolError("DATA after EOF")
	case len(p) > b.credit:
		return protocolError("DATA past the credit")
	}
	b.credit -= len(p)
	if b.closed {
		return nil
	}
	if !b.dead && b.direct != nil && b.held == 0 {
		p = p[b.direct(p):]
	}
	if b.dead || len(p) == 0 {
		// By the consumer, because who pushes must not wait for the other direction: a client may write much before it reads.
		if b.credit < b.window/2 {
			b.due = true
			b.cond.Broadcast()
		}
		return nil
	}
	b.held += len(p)
	// The last chunk is filled up first, so that many small frames cannot take more memory than their bytes.
	if n := len(b.chunks); n > 0 {
		last := b.chunks[n-1]
		room := min(cap(last)-len(last), len(p))
		b.chunks[n-1] = append(last, p[:room]...)
		p = p[room:]
	}
	if len(p) > 0 {
		b.chunks = append(b.chunks, append(make([]byte, 0, max(len(p), smallChunk)), p...))
	}
	b.cond.Broadcast()
	return nil
}

// passBy lets DATA go straight to the consumer while nothing is queued.
func (b *inbox) passBy(direct func(p []byte) int) {
	b.mu.Lock()
	b.direct = direct
	b.mu.Unlock()
}

func (b *inbox) pushEOF() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.eof {
		return protocolError("EOF twice")
	}
	b.eof = true
	b.cond.Broadcast()
	return nil
}

// pop waits for the next chunk, which is empty when there is only credit to send. more is false at the end of the input; ok is false
// when the stream has gone.
func (b *inbox) pop() (chunk []byte, more, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.chunks) == 0 && !b.due && !b.eof && !b.closed {
		b.cond.Wait()
	}
	due := b.due
	b.due = false
	switch {
	case b.closed:
		return nil, false, false
	case len(b.chunks) > 0:
		chunk = b.chunks[0]
		b.chunks[0] = nil
		b.chunks = b.chunks[1:]
		return chunk, true, true
	case due:
		return nil, true, true
	}
	return nil, false, true
}

// consumed says that n popped bytes are no longer held.
func (b *inbox) consumed(n int) {
	b.mu.Lock()
	b.held -= n
	b.mu.Unlock()
}

// abandon drops what is held and all that still comes.
func (b *inbox) abandon() {
	b.mu.Lock()
	b.dead = true
	b.chunks, b.held = nil, 0
	b.mu.Unlock()
}

// grant says how much credit to send to the client now; 0 for none.
func (b *inbox) grant() uint32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.eof {
		return 0
	}
	if b.credit < b.window/2 && b.held < b.window/2 && b.drawn > 0 { // it is used up, and consumed: let it grow
		b.window = min(2*b.window, b.max)
	}
	n := b.window - b.credit - b.held
	if n < b.window/2 && b.credit > 0 {
		return 0
	}
	room := inputCredit + b.drawn - b.credit - b.held
	if n > room {
		got := b.pool.take(n - room)
		b.drawn += got
		n = room + got
	}
	if n <= 0 {
		return 0
	}
	b.credit += n
	return uint32(n)
}

// close gives everything back to the pool and wakes the consumer.
func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.closed = true
	b.pool.put(b.drawn)
	b.drawn, b.held, b.chunks = 0, 0, nil
	b.cond.Broadcast()
}
