package main

import (
	"bytes"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func pipeSink(t *testing.T) (r, w *os.File, s *sink) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w, newSink(w, &lingering{})
}

func TestALargeWriteToAPipeIsWhole(t *testing.T) {
	r, _, s := pipeSink(t)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	failed := make(chan error, 1)
	go func() { failed <- s.write(sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%v, or other bytes than were sent", err)
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}

func TestAClosedSinkLetsGoOfAWriterWhosePipeNobodyReads(t *testing.T) {
	r, w, s := pipeSink(t)
	failed := make(chan error, 1)
	go func() { failed <- s.write(make([]byte, 2*largeWrite)) }()
	deadline := time.Now().Add(patience)
	for n := 0; n < firstPipe; n, _ = unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ) { // until it is full
		if time.Now().After(deadline) {
			t.Fatal("the pipe was not filled")
		}
	}
	s.close()
	w.Close()
	if result(t, failed) == nil {
		t.Fatal("all was written")
	}
}
