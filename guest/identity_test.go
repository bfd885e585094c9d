package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestMainThreadStaysRoot needs root. The ids of the main thread are those that others see of the guest: the user could change its priority
// if they were the user's.
func TestMainThreadStaysRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for range 2000 { // which threads Go takes is chance
		id, err := newIdentity(1000, 1000)
		if err != nil {
			t.Fatal(err)
		}
		id.do(func() {
			if ids := effective(t, "thread-self"); ids != "1000 1000" {
				t.Errorf("the user's thread is %s", ids)
			}
		})
		if ids := effective(t, fmt.Sprintf("self/task/%d", os.Getpid())); ids != "0 0" {
			t.Fatalf("the main thread is %s", ids)
		}
		close(id.work)
	}
}

// effective reads the effective user and group of a thread.
func effective(t *testing.T, thread string) string {
	status, err := os.ReadFile("/proc/" + thread + "/status")
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]string, 0, 2)
	for line := range strings.Lines(string(status)) {
		if name, rest, _ := strings.Cut(line, ":"); name == "Uid" || name == "Gid" {
			ids = append(ids, strings.Fields(rest)[1])
		}
	}
	return strings.Join(ids, " ")
}
