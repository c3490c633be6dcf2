package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// grant is what the daemon has granted: how it is called in errors, and the
// commands that renew and end it.
type grant struct {
	title           string
	renewal, ending [][]any
}

// kept is something that a connection owns, or that is renewed until it is given back.
type kept struct {
	grant grant
	ttl   time.Duration
	locks *Locks
	line  *line // The keeper's until it has ended, then that of finish.
	term  *term

	guard    sync.Mutex
	reason   error // Why it is lost.
	released bool
	over     chan struct{} // Closed when it is released or lost.
	overOnce sync.Once
	lost     chan struct{} // Closed when it is lost.
	kept     chan struct{} // Closed when the keeper has ended.
	onLost   func()
}

// signs are the commands that renew it, or ask whether its connection lives.
func (k *kept) signs() [][]any {
	if k.ttl == 0 {
		return [][]any{{"PING"}}
	}
	return k.grant.renewal
}

// begin gives it its whole length, from now on: it began at an unknown time.
func (k *kept) begin(ctx context.Context) error {
	timeout := k.locks.settings.Timeout
	sent := time.Now()
	err := k.line.askAll(ctx, timeout, k.signs())
	if err == nil {
		k.term = newTerm(k.ttl, k.ttl, timeout, sent)
		return nil
	}
	k.line.close()
	var refused *Refused
	if errors.As(err, &refused) {
		return fmt.Errorf("%w: %s ended before its grant was known: %w", ErrLost, k.grant.title, err)
	}
	if k.ttl == 0 {
		return err
	}
	// Spares the next one the rest of a lease that nobody will use; where that
	// fails, it ends by itself, after four timeouts at most.
	other := k.locks.line()
	defer other.close()
	_ = other.askAll(context.WithoutCancel(ctx), timeout, k.grant.ending)
	return err
}

// start begins to keep it; onLost may be nil.
func (k *kept) start(onLost func()) {
	k.over, k.lost, k.kept = make(chan struct{}), make(chan struct{}), make(chan struct{})
	k.onLost = onLost
	go k.keep()
	if k.ttl > 0 {
		// The keeper may be waiting for an answer when the lease ends.
		go k.watch()
	}
}

// IsLost says whether somebody else may hold the lock by now.
func (k *kept) IsLost() bool { return k.Err() != nil }

// Lost is closed when the lock is lost before it is released.
func (k *kept) Lost() <-chan struct{} { return k.lost }

// Err is nil while the lock is held, and an ErrLost once it is lost.
func (k *kept) Err() error {
	k.guard.Lock()
	defer k.guard.Unlock()
	if k.reason == nil && !k.released && k.term.isOver() {
		return k.as(errUnrenewed)
	}
	return k.reason
}

var errUnrenewed = errors.New("it ended, and no renewal was answered")

func (k *kept) as(why error) error {
	return fmt.Errorf("%w: %s: %w", ErrLost, k.grant.title, why)
}

// finish gives it back; an ErrLost unless the daemon confirms that it was held until now.
func (k *kept) finish(ctx context.Context) error {
	k.overOnce.Do(func() { close(k.over) })
	<-k.kept
	k.guard.Lock()
	released := k.released
	k.guard.Unlock()
	if released {
		return nil
	}
	defer func() { k.line.close() }()
	if err := k.Err(); err != nil {
		return err
	}
	err := k.line.askAll(ctx, k.term.answer, k.grant.ending)
	var refused *Refused
	if err != nil && !errors.As(err, &refused) && k.ttl > 0 {
		// A lease outlives its connection: without a second attempt, which the end of ctx
		// does not stop, it would last for the rest of its TTL.
		ctx = context.WithoutCancel(ctx)
		k.line = k.locks.line()
		err = k.line.askAll(ctx, k.term.answer, k.grant.ending)
	}
	k.guard.Lock()
	defer k.guard.Unlock()
	if err != nil {
		k.reason = k.as(fmt.Errorf("its release was not confirmed: %w", err))
		return k.reason
	}
	k.released = true
	return nil
}

// keep renews a lease; without one, it asks whether the connection lives.
func (k *kept) keep() {
	defer close(k.kept)
	pause := k.term.soon
	for k.rest(pause) {
		pause = k.term.every
		err := k.confirm()
		var refused *Refused
		switch {
		case err == nil:
		case errors.As(err, &refused) || k.ttl == 0:
			k.lose(err)
		default:
			k.line = k.locks.line()
			pause = k.term.again
		}
	}
}

// look is how often the keeper looks whether its connection has ended.
const look = 100 * time.Millisecond

// rest waits for the next renewal, or until the connection ends: a lease is then renewed at
// once, over another one, since the daemon may have ended, and the lease with it. False:
// it is over.
func (k *kept) rest(pause time.Duration) bool {
	for end := time.Now().Add(pause); time.Until(end) > 0; {
		select {
		case <-k.over:
			return false
		case <-time.After(min(time.Until(end), look)):
		}
		if k.line.ended() {
			if k.ttl > 0 {
				k.line.close()
				k.line = k.locks.line()
			}
			break
		}
	}
	return !k.isOver()
}

func (k *kept) confirm() error {
	sent := time.Now()
	limit := max(min(k.term.answer, k.term.left()), 1)
	err := k.line.askAll(context.Background(), limit, k.signs())
	if err == nil {
		k.term.extend(sent)
	}
	return err
}

func (k *kept) watch() {
	for left := k.term.left(); left > 0; left = k.term.left() {
		select {
		case <-k.over:
			return
		case <-time.After(left):
		}
	}
	k.lose(errUnrenewed)
}

// isOver says whether it is being given back, or lost.
func (k *kept) isOver() bool {
	select {
	case <-k.over:
		return true
	default:
		return false
	}
}

// lose marks it as lost, which is final, and tells once.
func (k *kept) lose(why error) {
	k.guard.Lock()
	defer k.guard.Unlock()
	if k.isOver() { // Released or lost before.
		return
	}
	k.reason = k.as(why)
	k.overOnce.Do(func() { close(k.over) })
	close(k.lost)
	go func() {
		<-k.kept
		k.line.close()
	}()
	if k.onLost != nil {
		go k.onLost()
	}
}
