// redsync: `redsync HOST:PORT PREFIX [LEASE]` locks the keys PREFIX:0, PREFIX:1, ...
//
// A lease of so many seconds (30) frees the lock of a worker that was killed.
package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
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
	return lost(released, err)
}

// Renew prolongs the lease to the one that the lock was made with.
func (l *lock) Renew(time.Duration) error {
	return lost(l.held.Extend())
}

func lost(owned bool, err error) error {
	var taken *redsync.ErrTaken
	expired := errors.Is(err, redsync.ErrLockAlreadyExpired)
	if expired || errors.As(err, &taken) || err == nil && !owned {
		return peer.ErrLost
	}
	return err
}

func main() {
	client := redis.NewClient(&redis.Options{Addr: os.Args[1], Password: os.Getenv("REDISCLI_AUTH")})
	sync := redsync.New(goredis.NewPool(client))
	seconds := 30.0
	if len(os.Args) > 3 {
		seconds, _ = strconv.ParseFloat(os.Args[3], 64)
	}
	capabilities := fmt.Sprintf("timeout give-up renew lease=%.0f", seconds*1000)
	peer.Serve(capabilities, func(worker, key int) (peer.Lock, error) {
		name := fmt.Sprintf("%s:%d", os.Args[2], key)
		lease := redsync.WithExpiry(time.Duration(seconds * float64(time.Second)))
		return &lock{
			wait: sync.NewMutex(name, lease, redsync.WithTries(math.MaxInt),
				redsync.WithRetryDelay(time.Millisecond)),
			try: sync.NewMutex(name, lease, redsync.WithTries(1)),
		}, nil
	})
}
