// The guest is the first process of every sandbox. It reaps, starts and ends commands, and reads and writes files
// beneath the workdir, on behalf of the control plane. See docs/guest-protocol.md.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const usage = `usage:
  guest init --workdir DIR [--uid N --gid N] [--own-pids] [--stdio]
  guest connect
  guest reach HOST:PORT...
  guest version
`

const socketName = "@guest"

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	var err error
	switch os.Args[1] {
	case "init":
		var o options
		if o, err = parseInit(os.Args[2:]); err != nil {
			fmt.Fprintf(os.Stderr, "guest: %v\n%s", err, usage)
			os.Exit(2)
		}
		err = runInit(o)
	case "connect":
		err = runConnect(socketName)
	case "reach":
		err = runReach(os.Stdout, os.Args[2:])
	case "version":
		fmt.Printf("guest protocol %d\n", maxVersion)
	default:
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "guest %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

// options of init. uid and gid are -1 when commands run as the guest itself.
type options struct {
	workdir  string
	uid, gid int
	ownPids  bool
	stdio    bool
	socket   string
}

func parseInit(args []string) (options, error) {
	o := options{socket: socketName}
	f := flag.NewFlagSet("init", flag.ContinueOnError)
	f.SetOutput(io.Discard) // main says what is wrong
	f.StringVar(&o.workdir, "workdir", "", "absolute path of the directory that file operations are confined to")
	f.IntVar(&o.uid, "uid", -1, "user of the commands and of all file work")
	f.IntVar(&o.gid, "gid", -1, "group of the commands and of all file work")
	f.BoolVar(&o.ownPids, "own-pids", false, "commands cannot use up the processes and threads that the guest may have")
	f.BoolVar(&o.stdio, "stdio", false, "serve fds 0 and 1 as the first connection")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case !filepath.IsAbs(o.workdir) || filepath.Clean(o.workdir) == "/":
		return o, errors.New("--workdir must be an absolute path other than /")
	case (o.uid < 0) != (o.gid < 0):
		return o, errors.New("--uid and --gid go together")
	}
	o.workdir = filepath.Clean(o.workdir)
	return o, nil
}
