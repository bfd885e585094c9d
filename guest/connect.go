package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	passByte    = 'F' // sent with the fds, and back when they are accepted
	connectTime = time.Second
	connectPoll = 5 * time.Millisecond
)

// runConnect gives fds 0 and 1 to init and sleeps until init has closed the connection.
func runConnect(name string) error {
	s, err := dial(name)
	if err != nil {
		return err
	}
	defer s.Close()
	_, _, err = s.WriteMsgUnix([]byte{passByte}, unix.UnixRights(0, 1), nil)
	os.Stdin.Close()
	os.Stdout.Close()
	var b [1]byte
	if err == nil {
		_, err = s.Read(b[:])
	}
	if err != nil {
		return fmt.Errorf("init refused the connection: %w", err)
	}
	_, _ = s.Read(b[:]) // however it ends, it has ended
	return nil
}

// input is where a connection is read from. It outlives its connect where the sandbox's own code killed that. Where the runtime did, because
// the other side has gone, not every runtime lets the end of input through: without connect, silence has to do.
type input struct {
	*os.File
	alone atomic.Bool
}

const mostSilence = 30 * time.Second // a client pings every 10 s

func (i *input) Read(p []byte) (int, error) {
	if i.alone.Load() {
		_ = i.SetReadDeadline(time.Now().Add(mostSilence)) // what can't have one fails in Read
	}
	return i.File.Read(p)
}

func (i *input) distrust() {
	i.alone.Store(true)
	_ = i.SetReadDeadline(time.Now().Add(mostSilence)) // it may be closed by now
}

// dial waits for init to come up.
func dial(name string) (*net.UnixConn, error) {
	deadline := time.Now().Add(connectTime)
	for {
		s, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
		if err == nil || time.Now().After(deadline) {
			return s, err
		}
		time.Sleep(connectPoll)
	}
}

// accept returns the two fds that came over the socket.
func accept(s *net.UnixConn) (in, out *os.File, err error) {
	if err := checkPeer(s); err != nil {
		return nil, nil, err
	}
	if err := s.SetReadDeadline(time.Now().Add(firstByteTime)); err != nil {
		return nil, nil, err
	}
	fds, err := receive(s)
	if err == nil && len(fds) != 2 {
		err = errors.New("it did not send two fds")
	}
	if err == nil {
		err = s.SetReadDeadline(time.Time{})
	}
	if err == nil {
		in, err = pollable(fds[0])
	}
	if err == nil {
		out, err = pollable(fds[1])
	}
	if err != nil {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return nil, nil, err
	}
	return in, out, nil
}

// receive reads one byte and what fds came with it.
func receive(s *net.UnixConn) ([]int, error) {
	b := make([]byte, 1)
	oob := make([]byte, unix.CmsgSpace(4*8))
	n, oobn, _, _, err := s.ReadMsgUnix(b, oob)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, err
	}
	var fds []int
	for _, m := range messages {
		some, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue // some other kind of message
		}
		fds = append(fds, some...)
	}
	if n != 1 || b[0] != passByte {
		err = errors.New("unexpected first byte")
	}
	return fds, err
}

// checkPeer lets only init's own uid in: with --uid, commands are somebody else.
func checkPeer(s *net.UnixConn) error {
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	if int(cred.Uid) != os.Getuid() {
		return fmt.Errorf("uid %d is not allowed", cred.Uid)
	}
	return nil
}
