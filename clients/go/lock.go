// Package lock takes locks of jostled, on go-redis.
//
//	locks := lock.New(&redis.Options{Addr: "127.0.0.1:2626"}, lock.Settings{})
//	held, err := locks.Acquire(ctx, "job", lock.Wish{Wait: 5 * time.Second, TTL: 10 * time.Second})
//	if err != nil { ... }
//	write(result, held.Token)
//	err = held.Release(ctx)
//
// Four words have one meaning each:
//
//   - wait: how long the daemon lets a request wait for the grant.
//   - timeout: how long an answer may take beyond that. When it passes, the
//     connection is closed, so that neither a waiter nor a lock that nobody knows
//     of stays behind.
//   - lost: the lock is known, or must be feared, to be somebody else's.
//   - token: the fencing token: hand it to whatever you write to, which refuses a
//     token smaller than the largest it has seen.
package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrNotGranted says that somebody else had the lock for the whole wait.
	ErrNotGranted = errors.New("not granted")
	// ErrNoAnswer says that the daemon did not answer in time, or could not be
	// reached. The connection is closed, which takes the request out of the line.
	// A lock that was granted in that moment ends with the connection; a lease,
	// after the timeout, since it gets its length only when its grant is known.
	ErrNoAnswer = errors.New("no answer")
	// ErrLost says that somebody else may hold the lock, or may have held it meanwhile.
	ErrLost = errors.New("lock lost")
)

// Refused is an error with which the daemon answered.
type Refused struct {
	// Message is what the daemon said, its first word the kind of error.
	Message string
}

func (r *Refused) Error() string { return "refused: " + r.Message }

// Forever as Wish.Wait waits without limit.
const Forever = time.Duration(-1)

// Settings of Locks.
type Settings struct {
	// Timeout is how long an answer may take, beyond the wait where there is one; 5 s if 0.
	Timeout time.Duration
	// Retries is how often LOCK is sent again when no answer came: on a new
	// connection, after the old one was closed.
	Retries int
}

// Wish is what is asked for.
type Wish struct {
	// Wait is how long to wait for the grant: 0 to take it or leave it, or Forever.
	Wait time.Duration
	// TTL makes the lock a lease, renewed at a third of it. Without, it belongs to
	// a connection that is opened for it.
	TTL time.Duration
	// Shared asks for a reader's lock.
	Shared bool
	// Of asks for one of so many places; 0 and 1 are an exclusive lock.
	Of int
	// OnLost is called once, in a goroutine of its own, when the lock is lost
	// before it is released: for a lease at its end at the latest, also when the
	// daemon does not answer; without a lease at most 4/3 of the timeout after the
	// daemon's last sign.
	OnLost func(*Held)
}

// Locks takes locks at one daemon. It may be used by many goroutines.
type Locks struct {
	options  redis.Options
	settings Settings
}

// New gives the locks of the daemon at options.Addr; user, password, TLS and
// Dialer are taken from options, what has to do with pools and repeated sending is not.
func New(options *redis.Options, settings Settings) *Locks {
	if settings.Timeout <= 0 {
		settings.Timeout = 5 * time.Second
	}
	return &Locks{options: *options, settings: settings}
}

// Acquire waits for a lock. The end of ctx while it waits takes it out of the
// line. Errors: ErrNotGranted, ErrNoAnswer, *Refused, that of ctx, or ErrLost if
// a lease ended before its grant was known.
func (l *Locks) Acquire(ctx context.Context, name string, wish Wish) (*Held, error) {
	if err := wish.check(); err != nil {
		return nil, err
	}
	end := time.Now().Add(wish.Wait)
	for left := l.settings.Retries; ; left-- {
		held, err := l.attempt(ctx, name, wish, end)
		if err == nil || left <= 0 || !errors.Is(err, ErrNoAnswer) {
			return held, err
		}
		// A daemon that starts again needs a moment.
		select {
		case <-time.After(l.settings.Timeout / 4):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (w *Wish) check() error {
	switch {
	case w.Wait < 0 && w.Wait != Forever:
		return errors.New("lock: Wait is at least 0, or Forever")
	case w.TTL < 0 || (w.TTL > 0 && w.TTL < 10*time.Millisecond):
		return errors.New("lock: TTL is at least 10 ms, or 0 for no lease")
	case w.Of < 0 || (w.Shared && w.Of > 1):
		return errors.New("lock: shared locks have no places: give Shared or Of")
	}
	return nil
}

// attempt sends one LOCK on a connection of its own, which stays open if it is granted.
func (l *Locks) attempt(ctx context.Context, name string, wish Wish, end time.Time) (*Held, error) {
	line := newLine(&l.options, l.settings.Timeout)
	sent := time.Now()
	limit := time.Duration(0)
	words := []any{"LOCK", name}
	first := min(wish.TTL, l.settings.Timeout)
	if wish.TTL > 0 {
		// A grant whose answer does not arrive leaves a lease that nobody knows
		// of. Taken for the timeout alone, it does not keep others out for long.
		words = append(words, "TTL", first.Milliseconds())
	}
	if wish.Wait != Forever {
		left := max(end.Sub(sent), 0)
		limit = left + l.settings.Timeout
		words = append(words, "WAIT", left.Milliseconds())
	}
	if wish.Shared {
		words = append(words, "SHARED")
	}
	if wish.Of > 1 {
		words = append(words, "OF", wish.Of)
	}
	token, err := line.ask(ctx, limit, words...)
	if err != nil {
		line.close()
		if errors.Is(err, redis.Nil) {
			err = fmt.Errorf("%w: %s was taken by others for %v", ErrNotGranted, name, wish.Wait)
		}
		return nil, err
	}
	held := &Held{Name: name, wish: wish, locks: l, line: line}
	held.Token, _ = token.(int64)
	held.term = newTerm(first, l.settings.Timeout, sent)
	if first != wish.TTL || (wish.TTL > 0 && held.term.left() < 2*held.term.every) {
		if err := held.begin(ctx); err != nil {
			return nil, err
		}
	}
	held.start()
	return held, nil
}
