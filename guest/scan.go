package main

import (
	"bytes"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// process is one living process as /proc shows it.
type process struct {
	pid, ppid, sid int
	tag            uint64
}

// snapshot is one scan of /proc. It is never exact: processes start and end while it is taken.
type snapshot struct {
	all    []process
	index  map[int]int
	lowest uint64 // a tag below this was never given out
}

const noTag = ^uint64(0)

// scan leaves out zombies, the guest itself, and what the runtime put in from outside, which alone has no parent here: `guest connect`
// above all, whose end would end its connection. In gVisor such a process shares the guest's limits, and so bears the newest tag.
func (s *sweeper) scan() (*snapshot, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	snap := &snapshot{index: make(map[int]int, len(names))}
	buf := make([]byte, 4096)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == self {
			continue
		}
		p, ok, err := readProcess(pid, buf)
		if err != nil {
			return nil, err
		}
		if !ok || p.ppid == 0 {
			continue
		}
		if p.tag, err = s.tagOf(pid, buf); err != nil {
			return nil, err
		}
		snap.index[pid] = len(snap.all)
		snap.all = append(snap.all, p)
	}
	// Read last: whatever was started during the scan has a tag that is not below this.
	snap.lowest = s.procs.lowest.Load()
	return snap, nil
}

// readFile reads the beginning of a file. One that cannot be opened because it has gone is empty; an error is the guest's own trouble.
func readFile(path string, buf []byte) ([]byte, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	switch err {
	case nil:
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM:
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	default:
		return nil, nil
	}
	defer syscall.Close(fd)
	n := 0
	for n < len(buf) {
		m, err := syscall.Read(fd, buf[n:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil || m == 0 {
			break
		}
		n += m
	}
	return buf[:n], nil
}

func readProcess(pid int, buf []byte) (p process, living bool, err error) {
	b, err := readFile("/proc/"+strconv.Itoa(pid)+"/stat", buf)
	end := bytes.LastIndexByte(b, ')') // the name before it may hold anything
	if end < 0 {
		return process{}, false, err
	}
	f := bytes.Fields(b[end+1:])
	if len(f) < 4 || f[0][0] == 'Z' || f[0][0] == 'X' {
		return process{}, false, nil
	}
	ppid, err1 := strconv.Atoi(string(f[1]))
	sid, err2 := strconv.Atoi(string(f[3]))
	return process{pid: pid, ppid: ppid, sid: sid}, err1 == nil && err2 == nil, nil
}

// tagOf reads the hard RLIMIT_RSS. prlimit needs the same uid, /proc/PID/limits does not.
func (s *sweeper) tagOf(pid int, buf []byte) (uint64, error) {
	if !s.otherUID {
		var l unix.Rlimit
		if unix.Prlimit(pid, unix.RLIMIT_RSS, nil, &l) == nil {
			return l.Max, nil
		}
	}
	b, err := readFile("/proc/"+strconv.Itoa(pid)+"/limits", buf)
	return parseTag(b), err
}

func parseTag(limits []byte) uint64 {
	_, line, ok := bytes.Cut(limits, []byte("Max resident set"))
	if !ok {
		return noTag
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	f := bytes.Fields(line)
	if len(f) < 2 {
		return noTag
	}
	v, err := strconv.ParseUint(string(f[1]), 10, 64)
	if err != nil { // "unlimited"
		return noTag
	}
	return v
}

// members of the given subtrees: by tag, by the session and the pid of a main process that is not yet reaped, and all
// descendants of those.
func (snap *snapshot) members(children []*child, evaders func(process) bool) []int {
	tags := make(map[uint64]bool, len(children))
	roots := make(map[int]bool, len(children))
	for _, c := range children {
		tags[c.tag] = true
		// Not reaped even now, after the scan: so its pid meant this process all the time.
		if pid := int(c.pid.Load()); pid != 0 && !c.reaped.Load() {
			roots[pid] = true
		}
	}
	in := make([]bool, len(snap.all))
	var found []int
	for i, p := range snap.all {
		if tags[p.tag] || roots[p.pid] || roots[p.sid] || evaders != nil && evaders(p) {
			in[i] = true
			found = append(found, p.pid)
		}
	}
	if len(found) == 0 {
		return nil
	}
	for again := true; again; {
		again = false
		for i, p := range snap.all {
			if j, ok := snap.index[p.ppid]; ok && !in[i] && in[j] {
				in[i], again = true, true
				found = append(found, p.pid)
			}
		}
	}
	return found
}

// below says whether a process descends from the guest.
func (snap *snapshot) below(p process, guest int) bool {
	for range snap.all {
		if p.ppid == guest {
			return true
		}
		i, ok := snap.index[p.ppid]
		if !ok {
			return false
		}
		p = snap.all[i]
	}
	return false
}
