// etcd's concurrency.Mutex: `etcd HOST:PORT PREFIX [TTL]` locks the names PREFIX/0, PREFIX/1, ...
//
// The session's lease of so many seconds (10) frees the lock of a worker that was killed. Its library
// renews it every third, and half a second later at worst: what is left then is the promise.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"jostle-locks/peer"
)

type lock struct{ *concurrency.Mutex }

func (l lock) Acquire(ctx context.Context, shared, wait bool) error {
	if wait {
		return l.Lock(ctx)
	}
	err := l.TryLock(ctx)
	if errors.Is(err, concurrency.ErrLocked) {
		return peer.ErrRefused
	}
	return err
}

func (l lock) Release() error { return l.Unlock(context.Background()) }

func main() {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{os.Args[1]},
		Logger:    zap.NewNop(),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ttl := 10
	if len(os.Args) > 3 {
		ttl, _ = strconv.Atoi(os.Args[3])
	}
	session, err := concurrency.NewSession(client, concurrency.WithTTL(ttl))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Frees what a wait that was given up has left.
	defer session.Close()
	capabilities := fmt.Sprintf("timeout give-up fifo restart lease=%d", max(ttl*2000/3-700, 1))
	peer.Serve(capabilities, func(worker, key int) (peer.Lock, error) {
		return lock{concurrency.NewMutex(session, fmt.Sprintf("%s/%d", os.Args[2], key))}, nil
	})
}
