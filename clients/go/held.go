package lock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// Held is a lock that was granted; call Release when done.
type Held struct {
	// Name of the lock.
	Name string
	// Token is the fencing token: larger than that of every earlier grant.
	Token int64

	wish  Wish
	locks *Locks
	line  *line // The keeper's until it has ended, then Release's.
	term  *term

	guard    sync.Mutex
	reason   error // Why it is lost.
	released bool
	over     chan struct{} // Closed when it is released or lost.
	overOnce sync.Once
	lost     chan struct{} // Closed when it is lost.
	kept     chan struct{} // Closed when the keeper has ended.
}

// begin gives a lease its whole length, from now on: it began at an unknown time.
func (h *Held) begin(ctx context.Context) error {
	timeout := h.locks.settings.Timeout
	sent := time.Now()
	_, err := h.line.ask(ctx, timeout, h.renew()...)
	if err == nil {
		h.term = newTerm(h.wish.TTL, timeout, sent)
		return nil
	}
	h.line.close()
	var refused *Refused
	if errors.As(err, &refused) {
		return fmt.Errorf("%w: %s ended before its grant was known: %w", ErrLost, h.Name, err)
	}
	// Spares the next one the rest of a lease that nobody will use; where that
	// fails, it ends by itself after the timeout.
	other := newLine(&h.locks.options, timeout)
	defer other.close()
	_, _ = other.ask(context.WithoutCancel(ctx), timeout, h.unlock()...)
	return err
}

func (h *Held) renew() []any {
	return []any{"RENEW", h.Name, h.Token, "TTL", h.wish.TTL.Milliseconds()}
}

func (h *Held) unlock() []any { return []any{"UNLOCK", h.Name, h.Token} }

func (h *Held) start() {
	h.over, h.lost, h.kept = make(chan struct{}), make(chan struct{}), make(chan struct{})
	go h.keep()
	if h.wish.TTL > 0 {
		// The keeper may be waiting for an answer when the lease ends.
		go h.watch()
	}
}

// IsLost says whether somebody else may hold the lock by now.
func (h *Held) IsLost() bool { return h.Err() != nil }

// Lost is closed when the lock is lost before it is released.
func (h *Held) Lost() <-chan struct{} { return h.lost }

// Err is nil while the lock is held, and an ErrLost once it is lost.
func (h *Held) Err() error {
	h.guard.Lock()
	defer h.guard.Unlock()
	if h.reason == nil && !h.released && h.term.isOver() {
		return h.as(errUnrenewed)
	}
	return h.reason
}

var errUnrenewed = errors.New("the lease ended, and no renewal was answered")

func (h *Held) as(why error) error {
	return fmt.Errorf("%w: %s (token %d): %w", ErrLost, h.Name, h.Token, why)
}

// Release gives the lock back. If it returns nil, the daemon has confirmed that
// the lock was held from its grant to this moment; otherwise the error is an
// ErrLost. A second call does nothing.
func (h *Held) Release(ctx context.Context) error {
	h.overOnce.Do(func() { close(h.over) })
	<-h.kept
	h.guard.Lock()
	released := h.released
	h.guard.Unlock()
	if released {
		return nil
	}
	defer func() { h.line.close() }()
	if err := h.Err(); err != nil {
		return err
	}
	_, err := h.line.ask(ctx, h.term.answer, h.unlock()...)
	if errors.Is(err, ErrNoAnswer) && h.wish.TTL > 0 {
		h.line = newLine(&h.locks.options, h.locks.settings.Timeout)
		_, err = h.line.ask(ctx, h.term.answer, h.unlock()...)
	}
	h.guard.Lock()
	defer h.guard.Unlock()
	if err != nil {
		h.reason = h.as(fmt.Errorf("its release was not confirmed: %w", err))
		return h.reason
	}
	h.released = true
	return nil
}

// keep renews a lease; without one, it asks whether the connection lives.
func (h *Held) keep() {
	defer close(h.kept)
	pause := h.term.every
	for {
		select {
		case <-h.over:
			return
		case <-time.After(pause):
		}
		pause = h.term.every
		err := h.confirm()
		var refused *Refused
		switch {
		case err == nil:
		case errors.As(err, &refused) || h.wish.TTL == 0:
			h.lose(err)
		default:
			h.line = newLine(&h.locks.options, h.locks.settings.Timeout)
			pause /= 4
		}
	}
}

func (h *Held) confirm() error {
	words := []any{"PING"}
	if h.wish.TTL > 0 {
		words = h.renew()
	}
	sent := time.Now()
	_, err := h.line.ask(context.Background(), h.term.answer, words...)
	if err == nil {
		h.term.extend(sent)
	}
	return err
}

func (h *Held) watch() {
	for left := h.term.left(); left > 0; left = h.term.left() {
		select {
		case <-h.over:
			return
		case <-time.After(left):
		}
	}
	h.lose(errUnrenewed)
}

// lose marks it as lost, which is final, and tells once.
func (h *Held) lose(why error) {
	h.guard.Lock()
	defer h.guard.Unlock()
	select {
	case <-h.over: // Released or lost before.
		return
	default:
	}
	h.reason = h.as(why)
	h.overOnce.Do(func() { close(h.over) })
	close(h.lost)
	go func() {
		<-h.kept
		h.line.close()
	}()
	if h.wish.OnLost != nil {
		go h.wish.OnLost(h)
	}
}

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
