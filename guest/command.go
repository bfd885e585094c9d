package main

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// command is one stream that runs a program. It lives until RELEASE; its subtree may live longer.
type command struct {
	c      *conn
	id     uint32
	spec   *start // nil once started
	child  *child
	window window
	in     *inbox // nil without stdin
	full   bool   // stdin was

	pty      bool
	lasting  bool          // not the connection's, nor STOPALL's, to end
	resolved chan struct{} // closed when it is known whether it started

	mu       sync.Mutex
	outs     []*output // nil until started, like stdin
	stdin    *file     // of a pty: its master
	rows     uint16    // of a pty, like cols
	cols     uint16
	started  bool
	stopped  bool // by STOPALL
	exited   bool // EXIT is sent
	released bool
	kills    int // KILLs not yet answered
}

const (
	maxStarting    = 32      // starts in flight, of all connections
	maxStartBytes  = 8 << 20 // STARTs that wait, of all connections
	startQueueTime = 10 * time.Second
	drainTime      = 30 * time.Second // a busy server may be this late with credit
	maxKills       = 4                // unanswered, of one command
)

var (
	errStopped = errors.New("stopped")
	errGone    = errors.New("the connection has gone")
)

func (c *conn) startCommand(f frame) error {
	s, err := decodeStart(f.payload)
	if err != nil {
		return refused("START: " + err.Error())
	}
	k := &command{
		c: c, id: f.stream, spec: &s, child: newChild(), pty: s.pty, lasting: s.lasting,
		rows: s.rows, cols: s.cols, resolved: make(chan struct{}),
	}
	if err := k.window.add(s.credit); err != nil {
		return err
	}
	if c.g.startBytes.Add(int64(s.size)) > maxStartBytes {
		c.g.startBytes.Add(-int64(s.size))
		c.sendExit(f.stream, kindLimit, int32(syscall.EAGAIN), "too many commands wait to be started")
		return nil
	}
	if s.lasting && c.g.lasting.Add(1) > maxLasting {
		c.g.lasting.Add(-1)
		c.g.startBytes.Add(-int64(s.size))
		c.sendExit(f.stream, kindLimit, int32(syscall.EAGAIN), "too many lasting commands")
		return nil
	}
	if s.stdin {
		k.in = newInbox(&c.pool, inputWindow)
	}
	c.add(f.stream, k)
	c.mu.Lock()
	c.commands[k] = struct{}{}
	c.mu.Unlock()
	c.g.register(k)
	if k.in != nil {
		c.sendCredit(k.id, k.in.grant())
	}
	go k.run()
	return nil
}

// run starts the command, and ends when EXIT is sent.
func (k *command) run() {
	err := k.start()
	k.c.g.startBytes.Add(-int64(k.spec.size))
	k.spec = nil
	if err != nil {
		k.failed(err)
		return
	}
	k.tellStarted()
	k.mu.Lock()
	k.started = true
	k.mu.Unlock()
	close(k.resolved)
	if k.in != nil {
		go k.feed()
	}
	for _, o := range k.outs {
		go o.run()
	}
	if k.c.isGone() {
		k.end()
	}
	<-k.child.done
	k.drain()
	kind, value, text := k.result()
	k.mu.Lock()
	k.exited = true
	k.mu.Unlock()
	k.c.sendExit(k.id, kind, value, text)
	k.c.g.sweeper.watch(k.child, k.subtreeEnded)
}

// tellStarted sends what a client waits for before it writes input, and posts what will soon be followed by more.
func (k *command) tellStarted() {
	tell := k.c.post
	if k.in != nil || k.pty || k.lasting {
		tell = k.c.send
	}
	tell(rStarted, k.id, newFrame(4).u32(uint32(k.child.pid.Load())))
}

func (k *command) result() (byte, int32, string) {
	status := k.child.status
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.stopped:
		return kindStopped, int32(syscall.SIGKILL), "stopped"
	case status.Signaled():
		return kindSignal, int32(status.Signal()), ""
	}
	return kindDone, int32(status.ExitStatus()), ""
}

// failed answers a command that never ran, and forgets it.
func (k *command) failed(err error) {
	k.c.remove(k.id)
	k.forget()
	k.end()
	kind, value, text := byte(kindOther), int32(0), err.Error()
	var s startError
	if errors.As(err, &s) {
		kind, value = s.kind, int32(s.errno)
	} else if errors.Is(err, errStopped) {
		kind, value = kindStopped, int32(syscall.SIGKILL)
	}
	close(k.resolved)
	k.c.sendExit(k.id, kind, value, text)
}

func (k *command) forget() {
	k.c.mu.Lock()
	delete(k.c.commands, k)
	k.c.mu.Unlock()
	k.c.g.unregister(k)
	if k.lasting {
		k.c.g.lasting.Add(-1)
	}
}

func (k *command) subtreeEnded() {
	k.forget()
	k.mu.Lock()
	released := k.released
	k.mu.Unlock()
	if !released {
		k.c.send(rTree, k.id, newFrame(0))
	}
}

func (k *command) start() error {
	wait := time.NewTimer(startQueueTime)
	defer wait.Stop()
	select {
	case k.c.g.starting <- struct{}{}:
	case <-k.c.gone:
		return errGone
	case <-wait.C:
		return startError{kindLimit, syscall.EAGAIN, "too many commands are being started"}
	}
	defer func() { <-k.c.g.starting }()

	var where location
	var err error
	k.c.g.identity.do(func() { where, err = k.c.g.locate(k.spec) })
	if err != nil {
		return err
	}
	p, err := k.open()
	if err != nil {
		return limitError(err)
	}
	defer p.closeChildren()
	attr := &syscall.ProcAttr{Dir: where.cwd, Env: k.spec.env, Files: p.files(), Sys: k.attributes()}
	err = k.c.g.procs.spawn(k.child, where.program, k.spec.argv, attr, k.mayStart)
	if err != nil {
		p.closeOurs()
		if errors.Is(err, errStopped) || errors.Is(err, errGone) {
			return err
		}
		return spawnError(err, where.program)
	}
	k.mu.Lock()
	for i, f := range []*os.File{p.stdout, p.stderr} {
		if f != nil {
			k.outs = append(k.outs, newOutput(k, byte(rOut+i), f))
		}
	}
	if p.stdin != nil {
		k.stdin = newFile(p.stdin, &k.c.g.lingering)
	}
	k.applySize() // it may have changed meanwhile
	k.mu.Unlock()
	return nil
}

// open makes what the command reads and writes.
func (k *command) open() (*pipes, error) {
	switch {
	case k.pty:
		return k.openPty()
	case k.lasting:
		return openNull()
	}
	return k.openPipes()
}

// mayStart is called under processes.spawning: what STOPALL and the end of the connection look at is set then.
func (k *command) mayStart() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return errStopped
	}
	if k.c.isGone() {
		return errGone
	}
	return nil
}

// drain waits until all that was in the pipes when the main process ended has been sent.
func (k *command) drain() {
	deadline := time.NewTimer(drainTime)
	defer deadline.Stop()
	if k.pty && k.outs[0].ended(time.After(hangupTime)) {
		return
	}
	targets := make([]uint64, len(k.outs))
	k.c.wmu.Lock() // nothing is between a pipe and the connection now
	for i, o := range k.outs {
		targets[i] = o.moved + uint64(o.pending())
	}
	k.c.wmu.Unlock()
	for i, o := range k.outs {
		if !o.reached(targets[i], deadline.C) {
			return
		}
	}
}

func (k *command) credit(n uint32) error { return k.window.add(n) }

func (k *command) data(p []byte) error {
	if k.in == nil {
		return protocolError("DATA for a command without stdin")
	}
	return k.in.push(p)
}

func (k *command) eof() error {
	if k.in == nil {
		return protocolError("EOF for a command without stdin")
	}
	return k.in.pushEOF()
}

func (k *command) release() error {
	k.mu.Lock()
	exited := k.exited
	k.released = exited
	k.mu.Unlock()
	if !exited {
		return refused("RELEASE before EXIT")
	}
	k.c.remove(k.id)
	k.end()
	return nil
}

// end lets go of the stream: stdin is closed, output is discarded from now on (or closed with the connection).
func (k *command) end() {
	k.window.close()
	if k.in != nil {
		k.in.close()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stdin != nil {
		k.stdin.close()
	}
	for _, o := range k.outs {
		if k.c.isGone() {
			o.close()
		}
	}
}

type killRequest struct {
	request       uint32
	signal, scope byte
}

const (
	scopeMain = 0
	scopeTree = 1
)

func (c *conn) kill(id uint32, s stream, r killRequest) error {
	answer := func(rounds, killed, left int) {
		c.send(rKilled, id, newFrame(16).u32(r.request).u32(uint32(rounds)).u32(uint32(killed)).u32(uint32(left)))
	}
	if s == nil {
		answer(0, 0, 0)
		return nil
	}
	k, ok := s.(*command)
	switch {
	case !ok:
		return refused("KILL of a file operation")
	case r.signal == 0 || r.signal > 64 || r.scope > scopeTree:
		return refused("KILL: bad signal or scope")
	}
	k.mu.Lock()
	many := k.kills >= maxKills
	if !many {
		k.kills++
	}
	k.mu.Unlock()
	if many {
		return refused("KILL: too many at once")
	}
	go k.kill(r, func(rounds, killed, left int) {
		k.mu.Lock()
		k.kills--
		k.mu.Unlock()
		answer(rounds, killed, left)
	})
	return nil
}

func (k *command) kill(r killRequest, answer func(rounds, killed, left int)) {
	<-k.resolved
	k.mu.Lock()
	started := k.started
	k.mu.Unlock()
	sig := unix.Signal(r.signal)
	switch {
	case !started:
		answer(0, 0, 0)
	case r.scope == scopeMain:
		n := 0
		if k.c.g.procs.signalMain(k.child, sig) {
			n = 1
		}
		answer(1, n, 0)
	case sig == unix.SIGKILL:
		k.c.g.sweeper.kill([]*child{k.child}, false, answer)
	default:
		n := k.c.g.sweeper.signal(k.child, sig)
		answer(1, n, n)
	}
}

func (k *command) isReleased() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.released
}
