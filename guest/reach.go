package main

import (
	"fmt"
	"io"
	"net"
	"time"
)

const reachTimeout = 3 * time.Second

// runReach writes those of the TCP addresses that take a connection, one a line. The control plane runs it to find out whether a sandbox
// gets where it should not.
func runReach(out io.Writer, addresses []string) error {
	reached := make([]bool, len(addresses))
	done := make(chan struct{})
	for i, address := range addresses {
		go func() {
			if conn, err := net.DialTimeout("tcp", address, reachTimeout); err == nil {
				conn.Close()
				reached[i] = true
			}
			done <- struct{}{}
		}()
	}
	for range addresses {
		<-done
	}
	for i, address := range addresses {
		if reached[i] {
			if _, err := fmt.Fprintln(out, address); err != nil {
				return err
			}
		}
	}
	return nil
}
