// etcd's concurrency.Mutex as a reference client of `cargo xtask peers --clients`:
// `etcd HOST:PORT`. For each line "MILLISECONDS" on standard input it takes and releases
// its lock for so long, and prints "PAIRS CPU_NS NS". It ends with its input.
package main

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(address string) error {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{address},
		Logger:    zap.NewNop(),
	})
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := concurrency.NewSession(client)
	if err != nil {
		return err
	}
	defer session.Close()
	mutex := concurrency.NewMutex(session, "jostle-reference:0")
	var milliseconds int64
	for {
		if _, err := fmt.Scanln(&milliseconds); err != nil {
			return nil
		}
		if err := span(mutex, time.Duration(milliseconds)*time.Millisecond); err != nil {
			return err
		}
	}
}

func span(mutex *concurrency.Mutex, length time.Duration) error {
	cpu, begin, pairs := cpuTime(), time.Now(), 0
	for time.Since(begin) < length {
		if err := mutex.Lock(context.Background()); err != nil {
			return err
		}
		if err := mutex.Unlock(context.Background()); err != nil {
			return err
		}
		pairs++
	}
	taken := time.Since(begin)
	_, err := fmt.Println(pairs, (cpuTime() - cpu).Nanoseconds(), taken.Nanoseconds())
	return err
}

// cpuTime is that of all threads of this process.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
