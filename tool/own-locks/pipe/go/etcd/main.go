// etcd's concurrency.Mutex: `etcd HOST:PORT PREFIX` locks the names PREFIX/0, PREFIX/1, ...
//
// The session's lease of 10 s frees the lock of a worker that was killed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

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
	session, err := concurrency.NewSession(client, concurrency.WithTTL(10))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Frees what a wait that was given up has left.
	defer session.Close()
	peer.Serve("timeout", func(worker, key int) (peer.Lock, error) {
		return lock{concurrency.NewMutex(session, fmt.Sprintf("%s/%d", os.Args[2], key))}, nil
	})
}
