// redsync: `redsync HOST:PORT PREFIX` locks the keys PREFIX:0, PREFIX:1, ...
//
// A lease of 30 s frees the lock of a worker that was killed.
package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"jostle-locks/peer"
)

type lock struct {
	wait, try *redsync.Mutex
	held      *redsync.Mutex
}

func (l *lock) Acquire(ctx context.Context, shared, wait bool) error {
	mutex := l.wait
	if !wait {
		mutex = l.try
	}
	err := mutex.LockContext(ctx)
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
		return peer.ErrRefused
	}
	l.held = mutex
	return err
}

func (l *lock) Release() error {
	released, err := l.held.Unlock()
	if err == nil && !released {
		err = errors.New("the lock was lost before its release")
	}
	return err
}

func main() {
	client := redis.NewClient(&redis.Options{Addr: os.Args[1]})
	sync := redsync.New(goredis.NewPool(client))
	peer.Serve("timeout", func(worker, key int) (peer.Lock, error) {
		name := fmt.Sprintf("%s:%d", os.Args[2], key)
		lease := redsync.WithExpiry(30 * time.Second)
		return &lock{
			wait: sync.NewMutex(name, lease, redsync.WithTries(math.MaxInt),
				redsync.WithRetryDelay(time.Millisecond)),
			try: sync.NewMutex(name, lease, redsync.WithTries(1)),
		}, nil
	})
}
