package lock

import (
	"math"
	"sync"
	"time"
)

// term is how long a lock is surely held, by this machine's monotonic clock.
//
// The end of a lease is counted from before the request was sent, so it comes
// here before it comes at the daemon. Once over, it stays over: an answer that
// comes too late changes nothing. A lock without a lease has no end of its own.
type term struct {
	ttl time.Duration
	// How often to renew or to ask for a sign, and how long to wait for it.
	every, answer time.Duration

	guard sync.Mutex
	end   time.Time
	over  bool
}

func newTerm(ttl, timeout time.Duration, sent time.Time) *term {
	if ttl == 0 {
		return &term{every: timeout / 3, answer: timeout}
	}
	ttl = ttl.Truncate(time.Millisecond) // As the daemon has it.
	// An attempt that is not answered leaves time for two more.
	return &term{ttl: ttl, every: ttl / 3, answer: min(timeout, ttl/6), end: sent.Add(ttl)}
}

// extend: a request sent at `sent` was granted.
func (t *term) extend(sent time.Time) {
	t.guard.Lock()
	defer t.guard.Unlock()
	if t.leftGuarded() > 0 {
		t.end = sent.Add(t.ttl)
	}
}

// left until the end of the lease; without one, for ever.
func (t *term) left() time.Duration {
	t.guard.Lock()
	defer t.guard.Unlock()
	return t.leftGuarded()
}

func (t *term) isOver() bool { return t.left() <= 0 }

func (t *term) leftGuarded() time.Duration {
	if t.ttl == 0 {
		return math.MaxInt64
	}
	left := time.Until(t.end)
	t.over = t.over || left <= 0
	if t.over {
		return 0
	}
	return left
}
