package main

import (
	"net"
	"strings"
	"testing"
)

func TestReachTellsWhatTakesAConnection(t *testing.T) {
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	open, closed := listen(), listen()
	defer open.Close()
	closed.Close()
	var out strings.Builder
	if err := runReach(&out, []string{closed.Addr().String(), open.Addr().String(), "nonsense"}); err != nil {
		t.Fatal(err)
	}
	if want := open.Addr().String() + "\n"; out.String() != want {
		t.Fatalf("reached %q, want %q", out.String(), want)
	}
}
