// containerd-shim-runsc-v1 for machines without CAP_SYS_RESOURCE. gVisor's own shim lowers its daemon's OOM score to -999 and
// gives up where it may not; this is that shim with a start that leaves the score alone. One shim serves one pod.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/shim"
	runsc "gvisor.dev/gvisor/pkg/shim/v1"
	_ "gvisor.dev/gvisor/pkg/shim/v1/plugin"
)

type manager struct{ shim.Manager }

// Start puts this program into the background as the daemon of one pod. It listens on descriptor 3. containerd calls it in the
// pod's bundle directory, and takes the daemon's address from the answer now, and from the file "address" after a restart.
func (manager) Start(ctx context.Context, id string, opts shim.StartOpts) (params shim.BootstrapParams, err error) {
	namespace, err := namespaces.NamespaceRequired(ctx)
	if err != nil {
		return params, err
	}
	self, err := os.Executable()
	if err != nil {
		return params, err
	}
	address, err := shim.SocketAddress(ctx, opts.Address, id, opts.Debug)
	if err != nil {
		return params, err
	}
	listener, err := shim.NewSocket(address)
	if err != nil {
		return params, fmt.Errorf("listen on %s: %w", address, err)
	}
	defer func() {
		if err != nil {
			_ = shim.RemoveSocket(address)
		}
	}()
	socket, err := listener.File()
	if err != nil {
		return params, err
	}
	if err := os.WriteFile("address", []byte(address), 0o644); err != nil {
		return params, err
	}
	daemon := exec.Command(self, "-namespace", namespace, "-address", opts.Address, "-id", id)
	daemon.Env = append(os.Environ(), "GOMAXPROCS=2")
	daemon.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	daemon.ExtraFiles = []*os.File{socket}
	if err := daemon.Start(); err != nil {
		return params, err
	}
	if err := shim.WritePidFile("shim.pid", daemon.Process.Pid); err != nil {
		_ = daemon.Process.Kill()
		return params, err
	}
	return shim.BootstrapParams{Version: 2, Address: address, Protocol: "ttrpc"}, nil
}

func main() {
	shim.Run(context.Background(), manager{runsc.NewShimManager("io.containerd.runsc.v1")})
}
