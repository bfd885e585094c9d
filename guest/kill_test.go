package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// awkward starts eight processes in eight ways; each says its pid in a file of its own.
const awkward = `
mkdir -p "$1"; cd "$1"
s() { echo 'echo $$ >'"$1"'.new; mv '"$1"'.new '"$1"'; exec sleep 1000'; }
sh -c "$(s bg)" &
setsid sh -c "$(s setsid)" &
(sh -c "$(s double)" & )
(setsid sh -c "$(s doublesetsid)" & )
nohup sh -c "$(s nohup)" >/dev/null 2>&1 &
env -i setsid sh -c "PATH=/usr/bin:/bin; $(s noenv)" >/dev/null 2>&1 &
sh -c "trap '' TERM HUP INT; $(s deaf)" &
setsid sh -c "setsid sh -c '$(s nested)' & exit 0"
while [ "$(ls | grep -vc new)" -lt 8 ]; do sleep 0.01; done
echo all
`

func (c *client) awkward(dir string, then string) *testStream {
	return c.start(spec{argv: []string{"sh", "-c", awkward + then, "sh", dir}})
}

func pidsIn(t *testing.T, dir string) []int {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			t.Fatalf("%s: %q", f.Name(), b)
		}
		pids = append(pids, pid)
	}
	return pids
}

func alive(pids []int) (n int) {
	for _, pid := range pids {
		if p, ok, _ := readProcess(pid, make([]byte, 4096)); ok && p.pid == pid {
			n++
		}
	}
	return n
}

// awaitDead waits for processes whose death nobody reports to the test.
func awaitDead(t *testing.T, pids []int) {
	t.Helper()
	for end := time.Now().Add(patience); alive(pids) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d still alive", alive(pids))
		}
	}
}

func TestKillEndsTheWholeSubtree(t *testing.T) {
	g, c := startGuest(t)
	neighbour := c.awkward("b", "wait")
	neighbour.waitOut("all")
	for i := range 3 {
		dir := fmt.Sprint("a", i)
		s := c.awkward(dir, "wait")
		s.waitOut("all")
		pids := pidsIn(t, filepath.Join(g.dir, dir))
		if len(pids) != 8 || alive(pids) != 8 {
			t.Fatalf("%d of %d alive", alive(pids), len(pids))
		}
		_, killed, left := s.kill(syscall.SIGKILL, scopeTree)
		if killed < 8 || left != 0 || alive(pids) != 0 {
			t.Errorf("killed %d, left %d, alive %d", killed, left, alive(pids))
		}
		if got := s.wait(); got != (exit{1, 9, ""}) {
			t.Errorf("%+v", got)
		}
		s.await("tree", func() bool { return s.tree })
	}
	if n := alive(pidsIn(t, filepath.Join(g.dir, "b"))); n != 8 {
		t.Errorf("%d of the neighbour's 8 are left", n)
	}
}

func TestKillWorksAfterTheMainProcessHasEnded(t *testing.T) {
	g, c := startGuest(t)
	s := c.awkward("a", "")
	if got := s.wait(); got != (exit{}) {
		t.Fatalf("%+v %s", got, s.errs)
	}
	pids := pidsIn(t, filepath.Join(g.dir, "a"))
	if alive(pids) != 8 || s.tree {
		t.Fatalf("alive %d, tree ended %v", alive(pids), s.tree)
	}
	if _, killed, left := s.kill(syscall.SIGKILL, scopeTree); killed != 8 || left != 0 || alive(pids) != 0 {
		t.Errorf("killed %d, left %d, alive %d", killed, left, alive(pids))
	}
	s.await("tree", func() bool { return s.tree })
	if rounds, killed, left := s.kill(syscall.SIGKILL, scopeTree); killed != 0 || left != 0 || rounds == 0 {
		t.Errorf("again: rounds %d, killed %d, left %d", rounds, killed, left)
	}
}

func TestKillCatchesAForkingChain(t *testing.T) {
	_, c := startGuest(t)
	s := c.start(spec{argv: []string{"sh", "-c", `
cat >chain <<'X'
#!/bin/sh
setsid ./chain & exit 0
X
chmod +x chain; ./chain; echo running`}})
	s.waitOut("running")
	if _, _, left := s.kill(syscall.SIGKILL, scopeTree); left != 0 {
		t.Errorf("left %d", left)
	}
	s.await("tree", func() bool { return s.tree })
}

func TestSignalsReachTheMainProcessOrTheTree(t *testing.T) {
	_, c := startGuest(t)
	s := c.sh(`trap 'echo term; exit 3' TERM; sh -c "trap 'echo child; exit' TERM; echo up; while :; do sleep 0.01; done" & echo ready; wait; wait`)
	s.waitOut("up")
	s.waitOut("ready")
	if _, n, _ := s.kill(syscall.SIGTERM, scopeMain); n != 1 {
		t.Errorf("main: %d", n)
	}
	if got := s.wait(); got != (exit{0, 3, ""}) {
		t.Errorf("%+v", got)
	}
	if s.tree {
		t.Error("the child has gone too")
	}
	s.kill(syscall.SIGTERM, scopeTree)
	s.await("tree", func() bool { return s.tree })
	if !strings.Contains(string(s.out), "child") {
		t.Errorf("%q", s.out)
	}
	if _, n, _ := s.kill(syscall.SIGKILL, scopeMain); n != 0 {
		t.Errorf("killed a process that has gone")
	}
}

func TestStopAllEndsEverythingOnAllConnections(t *testing.T) {
	g, c := startGuest(t)
	other := g.connect()
	a := c.awkward("a", "wait")
	b := other.awkward("b", "") // its main process ends, the subtree stays
	a.waitOut("all")
	b.wait()
	released := c.awkward("r", "")
	released.wait()
	released.release()
	// Lowers its own tag: out of reach for a kill of its command, once it is adopted.
	evader := c.sh(`bash -c 'ulimit -m 1000; (setsid sh -c "echo \$\$ >e.new; mv e.new e; sleep 1000" >/dev/null 2>&1 &)'; until test -e e; do sleep 0.01; done`)
	if evader.wait(); len(evader.errs) > 0 {
		t.Fatalf("%s", evader.errs)
	}
	pids := append(pidsIn(t, filepath.Join(g.dir, "a")), pidsIn(t, filepath.Join(g.dir, "b"))...)
	pids = append(pids, pidsIn(t, filepath.Join(g.dir, "r"))...)
	hidden, err := os.ReadFile(filepath.Join(g.dir, "e"))
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(hidden)))
	pids = append(pids, pid)
	if alive(pids) != 25 {
		t.Fatalf("%d alive", alive(pids))
	}
	if n := other.stopAll(); n != 1 {
		t.Errorf("%d were running", n)
	}
	if alive(pids) != 0 {
		t.Errorf("%d alive", alive(pids))
	}
	if got := a.wait(); got.kind != kindStopped {
		t.Errorf("%+v", got)
	}
	if got := c.sh("echo again").wait(); got != (exit{}) {
		t.Errorf("%+v", got)
	}
}

func TestALostConnectionEndsItsCommandsAndNoOthers(t *testing.T) {
	g, c := startGuest(t)
	other := g.connect()
	kept := other.awkward("kept", "wait")
	kept.waitOut("all")
	s := c.awkward("a", "wait")
	s.waitOut("all")
	released := c.awkward("r", "")
	released.wait()
	released.release()
	c.ping()
	pids := append(pidsIn(t, filepath.Join(g.dir, "a")), pidsIn(t, filepath.Join(g.dir, "r"))...)
	c.f.Close()
	awaitDead(t, append(pids, s.pid))
	if n := alive(pidsIn(t, filepath.Join(g.dir, "kept"))); n != 8 {
		t.Errorf("%d of 8 left", n)
	}
	again := g.connect()
	if got := again.sh("exit 4").wait(); got != (exit{0, 4, ""}) {
		t.Errorf("%+v", got)
	}
}

func TestParseTag(t *testing.T) {
	const head = "Limit                     Soft Limit           Hard Limit           Units     \n"
	for text, want := range map[string]uint64{
		head + "Max resident set          5                    1125899906842623     bytes     \nMax processes 1 2": 1125899906842623,
		head + "Max resident set          unlimited            unlimited            bytes     \n":                  noTag,
		head:               noTag,
		"Max resident set": noTag,
		"":                 noTag,
	} {
		if got := parseTag([]byte(text)); got != want {
			t.Errorf("%q: %d", text, got)
		}
	}
}

func TestTheTagIsReadBothWays(t *testing.T) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_RSS, &l); err != nil {
		t.Fatal(err)
	}
	for _, other := range []bool{false, true} {
		s := sweeper{otherUID: other}
		if got, _ := s.tagOf(os.Getpid(), make([]byte, 4096)); got != l.Max {
			t.Errorf("otherUID %v: %d, not %d", other, got, l.Max)
		}
	}
}

func TestKillWorksWhenFdsAreUsedUp(t *testing.T) {
	t.Setenv("GUEST_TEST_NOFILE", "400")
	g, c := startGuest(t)
	var running []*testStream
	full := false
	for !full && len(running) < 400 {
		s := c.start(spec{argv: []string{"sleep", "1000"}})
		s.await("start", func() bool { return s.pid != 0 || s.exit != nil })
		if s.exit == nil {
			running = append(running, s)
			continue
		}
		full = true
		if s.exit.kind != kindLimit || s.exit.value != int32(syscall.EMFILE) {
			t.Errorf("%+v", *s.exit)
		}
	}
	if !full {
		t.Fatal("there was no end")
	}
	if _, killed, left := running[0].kill(syscall.SIGKILL, scopeTree); killed != 1 || left != 0 {
		t.Errorf("killed %d, left %d", killed, left)
	}
	if n := g.connect().stopAll(); int(n) != len(running)-1 {
		t.Errorf("%d of %d stopped", n, len(running)-1)
	}
	for _, s := range running {
		s.await("end", func() bool { return s.ended[rOut] && s.ended[rErr] && s.tree })
	}
	if got := c.sh("exit 6").wait(); got != (exit{0, 6, ""}) {
		t.Errorf("%+v", got)
	}
}
