package main

import "sync"

// Credit flows both ways. Outgoing (OUT, ERR) it protects the client: a window counts down what may still be sent.
// Incoming (DATA) it protects the guest: an inbox holds what came and was not consumed; credit given out plus bytes held
// never exceed what the connection's pool allows.

const (
	inputCredit = 4 << 10 // every stream that takes DATA has this much from its opening frame on
	firstWindow = 64 << 10
	inputWindow = 1 << 20
	creditSum   = 4 << 20
	poolSize    = creditSum - maxStreams*inputCredit
	maxWindow   = creditSum // the largest window that a client may open
)

// window is the sender's side: bytes that may still be sent on a stream.
type window struct {
	mu     sync.Mutex
	change chan struct{} // closed at the next change, if someone waits
	left   uint32
	closed bool
}

func (w *window) notify() {
	if w.change != nil {
		close(w.change)
		w.change = nil
	}
}

// add fails if the window would exceed maxWindow.
func (w *window) add(n uint32) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if uint64(w.left)+uint64(n) > maxWindow {
		return protocolError("credit exceeds the largest window")
	}
	w.left += n
	w.notify()
	return nil
}

// wait returns once at least n bytes may be sent, or false when the window was closed or cancel fired.
func (w *window) wait(n uint32, cancel <-chan struct{}) bool {
	for {
		w.mu.Lock()
		if w.closed {
			w.mu.Unlock()
			return false
		}
		if w.left >= n {
			w.mu.Unlock()
			return true
		}
		if w.change == nil {
			w.change = make(chan struct{})
		}
		change := w.change
		w.mu.Unlock()
		select {
		case <-change:
		case <-cancel:
			return false
		}
	}
}

// take reserves up to n bytes and says how many.
func (w *window) take(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if uint32(n) > w.left {
		n = int(w.left)
	}
	w.left -= uint32(n)
	return n
}

// giveBack returns a part of a reservation.
func (w *window) giveBack(n int) {
	if n == 0 {
		return
	}
	w.mu.Lock()
	if !w.closed {
		w.left += uint32(n)
		w.notify()
	}
	w.mu.Unlock()
}

func (w *window) close() {
	w.mu.Lock()
	w.closed, w.left = true, 0
	w.notify()
	w.mu.Unlock()
}

// pool is what the inboxes of one connection share beyond inputCredit each.
type pool struct {
	mu   sync.Mutex
	used int
}

func (p *pool) take(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n = max(0, min(n, poolSize-p.used))
	p.used += n
	return n
}

func (p *pool) put(n int) {
	p.mu.Lock()
	p.used -= n
	p.mu.Unlock()
}

func (w *window) empty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.left == 0
}
