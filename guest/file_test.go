package main

import (
	"bytes"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// flowing returns both ends of a pipe, of which one is in a flow.
func flowing(t *testing.T, reads bool) (other *os.File, f *file) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ours, other := r, w
	if !reads {
		ours, other = w, r
	}
	f = newFile(ours, &lingering{})
	f.flow(true)
	t.Cleanup(func() { f.close(); other.Close() })
	if !f.flowing {
		t.Fatal("no flow began")
	}
	return other, f
}

// untilPaused returns when Go's poller waits for the file.
func untilPaused(t *testing.T, f *file) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		f.mu.RLock()
		flowing := f.flowing
		f.mu.RUnlock()
		switch {
		case !flowing:
			return
		case time.Now().After(deadline):
			t.Fatal("the flow did not end")
		}
	}
}

func result[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(patience):
		t.Fatal("it still waits")
		panic("unreachable")
	}
}

func TestAFlowThatPausedGoesOn(t *testing.T) {
	w, f := flowing(t, true)
	readable := make(chan bool, 1)
	go func() { readable <- f.readable() }()
	untilPaused(t, f)
	if _, err := w.WriteString("more"); err != nil {
		t.Fatal(err)
	}
	if !result(t, readable) || f.pending() != 4 {
		t.Fatalf("%d bytes to read", f.pending())
	}
	f.flow(true)
	got := make([]byte, 8)
	if n, err := f.read(got); err != nil || string(got[:n]) != "more" {
		t.Fatalf("%q, %v", got[:n], err)
	}
	if _, err := f.read(got); err != unix.EAGAIN {
		t.Fatalf("of nothing: %v", err)
	}
	w.Close()
	if f.readable() {
		t.Fatal("readable after the end")
	}
}

func TestAFlowIntoAFullPipeWaitsForItsReader(t *testing.T) {
	r, f := flowing(t, false)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
	failed := make(chan error, 1)
	go func() { failed <- f.write(sent) }()
	untilPaused(t, f)
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%v, or other bytes than were sent", err)
	}
	if err := result(t, failed); err != nil {
		t.Fatal(err)
	}
}

func TestAClosedFileLetsGoOfWhoWaits(t *testing.T) {
	for _, paused := range []bool{false, true} {
		_, f := flowing(t, true)
		readable := make(chan bool, 1)
		go func() { readable <- f.readable() }()
		if paused {
			untilPaused(t, f)
		}
		f.close()
		if result(t, readable) {
			t.Fatal("readable, though closed")
		}
		if err := f.write([]byte("x")); err == nil {
			t.Fatal("written, though closed")
		}
	}
}
