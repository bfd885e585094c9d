package main

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// sweeper is one goroutine that scans /proc for all who want to know: kills of subtrees, and commands that wait for the
// end of theirs. One scan serves them all.
type sweeper struct {
	procs    *processes
	otherUID bool // commands run as another user
	alone    bool // the guest is the first process of its namespace: all others are the sandbox's

	mu      sync.Mutex
	kills   []*killing
	watches []*watch
	deaths  bool // something died since the last scan
	wake    chan struct{}
}

// killing ends subtrees: freeze, kill, scan again, until two scans in a row are empty.
type killing struct {
	children []*child
	evaders  bool
	done     func(rounds, killed, left int)

	deadline time.Time
	rounds   int
	empty    int
	seen     map[int]struct{}
}

// watch calls done once nothing of a subtree is left.
type watch struct {
	child *child
	done  func()
	empty int
}

const (
	killTime     = 10 * time.Second
	freezeRounds = 20
	scanPause    = 5 * time.Millisecond
	scanShare    = 10 // watching takes at most a tenth of the time
	slowestRound = 20 * time.Millisecond

	failedScanPause = 100 * time.Millisecond
)

func newSweeper(p *processes, otherUID bool) *sweeper {
	return &sweeper{procs: p, otherUID: otherUID, alone: os.Getpid() == 1, wake: make(chan struct{}, 1)}
}

func (s *sweeper) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// noteDeaths says that something was reaped: a subtree can become empty only then, because what outlives its parent is adopted by init.
func (s *sweeper) noteDeaths() {
	s.mu.Lock()
	s.deaths = true
	waiting := len(s.watches) > 0
	s.mu.Unlock()
	if waiting {
		s.poke()
	}
}

func (s *sweeper) kill(children []*child, evaders bool, done func(rounds, killed, left int)) {
	k := &killing{children: children, evaders: evaders, done: done, deadline: time.Now().Add(killTime), seen: map[int]struct{}{}}
	s.mu.Lock()
	s.kills = append(s.kills, k)
	s.mu.Unlock()
	s.poke()
}

func (s *sweeper) watch(c *child, done func()) {
	s.mu.Lock()
	s.watches = append(s.watches, &watch{child: c, done: done})
	s.deaths = true
	s.mu.Unlock()
	s.poke()
}

// signal sends one signal once to every member and says how many there were.
func (s *sweeper) signal(c *child, sig syscall.Signal) int {
	snap, err := s.scan()
	if err != nil {
		return 0
	}
	n := 0
	for _, pid := range snap.members([]*child{c}, nil) {
		if syscall.Kill(pid, sig) == nil {
			n++
		}
	}
	return n
}

func (s *sweeper) run() {
	timer := time.NewTimer(0)
	var nextWatch time.Time
	for {
		s.mu.Lock()
		kills := append([]*killing(nil), s.kills...)
		var watches []*watch
		if s.deaths || len(kills) > 0 {
			watches = append(watches, s.watches...)
		}
		pause := time.Until(nextWatch)
		if len(kills) == 0 && (len(watches) == 0 || pause > 0) {
			s.mu.Unlock()
			if len(watches) == 0 {
				<-s.wake
				continue
			}
			timer.Reset(pause)
			select {
			case <-s.wake:
			case <-timer.C:
			}
			continue
		}
		s.deaths = false
		s.mu.Unlock()

		begin := time.Now()
		snap, err := s.scan()
		if err != nil {
			fmt.Fprintln(os.Stderr, "guest: scan:", err)
			s.giveUp(kills)
			time.Sleep(failedScanPause)
			continue
		}
		slowest := 0
		for _, k := range kills {
			if s.round(k, snap) {
				s.forgetKilling(k)
				go k.done(k.rounds, len(k.seen), len(snap.members(k.children, s.evaders(k, snap))))
			} else {
				slowest = max(slowest, k.rounds)
			}
		}
		s.look(watches, snap)
		nextWatch = time.Now().Add(max(scanPause, scanShare*time.Since(begin)))
		if slowest > 1 {
			time.Sleep(min(time.Duration(slowest)*time.Millisecond, slowestRound))
		}
	}
}

// giveUp ends the killings whose time is over, when /proc could not be read: at least one process is then said to be left.
func (s *sweeper) giveUp(kills []*killing) {
	for _, k := range kills {
		if time.Now().After(k.deadline) {
			s.forgetKilling(k)
			go k.done(k.rounds, len(k.seen), 1)
		}
	}
}

func (s *sweeper) evaders(k *killing, snap *snapshot) func(process) bool {
	if !k.evaders {
		return nil
	}
	return func(p process) bool {
		return p.tag < snap.lowest && (s.alone || snap.below(p, os.Getpid()))
	}
}

// round works on one killing and says whether it is over.
func (s *sweeper) round(k *killing, snap *snapshot) bool {
	k.rounds++
	pids := snap.members(k.children, s.evaders(k, snap))
	if len(pids) == 0 {
		k.empty++
		return k.empty == 2
	}
	k.empty = 0
	if k.rounds <= freezeRounds { // so that forkers cannot run ahead
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGSTOP) // it may have gone: the next scan tells
		}
	}
	for _, pid := range pids {
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			k.seen[pid] = struct{}{}
		}
	}
	return time.Now().After(k.deadline)
}

func (s *sweeper) forgetKilling(k *killing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.kills {
		if other == k {
			s.kills = append(s.kills[:i], s.kills[i+1:]...)
			return
		}
	}
}

// look ends the watches whose subtree was empty twice.
func (s *sweeper) look(watches []*watch, snap *snapshot) {
	for _, w := range watches {
		if len(snap.members([]*child{w.child}, nil)) > 0 {
			w.empty = 0
			continue
		}
		w.empty++
		s.mu.Lock()
		if w.empty < 2 {
			s.deaths = true // look once more
		} else {
			for i, other := range s.watches {
				if other == w {
					s.watches = append(s.watches[:i], s.watches[i+1:]...)
					break
				}
			}
			go w.done()
		}
		s.mu.Unlock()
	}
}
