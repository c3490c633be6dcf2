// gofrs/flock: `flock STEM` locks the files STEM.0, STEM.1, ...
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/gofrs/flock"

	"jostle-locks/peer"
)

type lock struct{ *flock.Flock }

func (l lock) Acquire(ctx context.Context, shared, wait bool) error {
	try, block, retry := l.TryLock, l.Lock, l.TryLockContext
	if shared {
		try, block, retry = l.TryRLock, l.RLock, l.TryRLockContext
	}
	_, limited := ctx.Deadline()
	if wait && !limited {
		return block()
	}
	got, err := false, error(nil)
	if wait {
		got, err = retry(ctx, time.Millisecond)
	} else {
		got, err = try()
	}
	if err == nil && !got {
		return peer.ErrRefused
	}
	return err
}

func (l lock) Release() error { return l.Unlock() }

func main() {
	peer.Serve("shared timeout by=process", func(worker, key int) (peer.Lock, error) {
		return lock{flock.New(fmt.Sprintf("%s.%d", os.Args[1], key))}, nil
	})
}
