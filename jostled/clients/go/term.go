package lock

import (
	"sync"
	"time"
)

// term is how long a lock is surely held, by this machine's monotonic clock.
//
// The end of a lease is counted from before the request was sent, so it comes
// here before it comes at the daemon. Once over, it stays over: an answer that
// comes too late changes nothing. A lock without a lease ends with its connection, of
// which an answer to a PING tells as a renewal does.
type term struct {
	// Its length, and that of a lease until the first renewal makes it longer.
	ttl, first time.Duration
	// How often to renew or to ask for a sign, and how long to wait for it.
	every, answer time.Duration
	// When to do so for the first time, and after an attempt that was not answered.
	soon, again time.Duration

	guard sync.Mutex
	end   time.Time
	over  bool
}

// A member of a group that takes over keeps what connections held for 10 s, in which they
// are to find out. So without an answer such a lock counts as held for 0.85 of that.
const ofConnection = 8500 * time.Millisecond

// newTerm: a ttl of 0 is that of a connection.
func newTerm(ttl, first, timeout time.Duration, sent time.Time) *term {
	if ttl == 0 {
		every := min(timeout, ofConnection) / 3
		t := &term{ttl: ofConnection, first: ofConnection, every: every, soon: every, answer: timeout}
		t.end = sent.Add(t.ttl)
		return t
	}
	ttl = ttl.Truncate(time.Millisecond) // As the daemon has it.
	// An attempt that is not answered leaves time for two more.
	t := &term{ttl: ttl, first: min(first, ttl), every: ttl / 3, soon: ttl / 3, answer: min(timeout, ttl/6)}
	if t.first < ttl {
		// Who holds a lock for less pays no renewal.
		t.soon = min(first/3, time.Second)
	}
	t.again = min(t.every/4, t.answer)
	t.end = sent.Add(t.first)
	return t
}

// isLate says whether the grant was waited for, so that little may be left of it.
func (t *term) isLate() bool { return t.left() < t.first*2/3 }

// extend: a request sent at `sent` was granted.
func (t *term) extend(sent time.Time) {
	t.guard.Lock()
	defer t.guard.Unlock()
	if t.leftGuarded() > 0 {
		t.end = sent.Add(t.ttl)
	}
}

// left until the end, if nothing is answered.
func (t *term) left() time.Duration {
	t.guard.Lock()
	defer t.guard.Unlock()
	return t.leftGuarded()
}

func (t *term) isOver() bool { return t.left() <= 0 }

func (t *term) leftGuarded() time.Duration {
	left := time.Until(t.end)
	t.over = t.over || left <= 0
	if t.over {
		return 0
	}
	return left
}
