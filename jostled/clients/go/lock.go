// Package lock takes locks of jostled, on go-redis.
//
//	locks := lock.New(&redis.Options{Addr: "127.0.0.1:2626"}, lock.Settings{})
//	held, err := locks.Acquire(ctx, "job", lock.Wish{Wait: 5 * time.Second, TTL: 10 * time.Second})
//	if err != nil { ... }
//	write(result, held.Token)
//	err = held.Release(ctx)
//
// AcquireAll takes several locks in one step, and Session opens a session, which
// owns many locks that are renewed together.
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
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrNotGranted says that somebody else had the lock for the whole wait.
	ErrNotGranted = errors.New("not granted")
	// ErrNoAnswer says that the daemon did not answer in time, or could not be
	// reached. The connection is closed, which takes the request out of the line.
	// A lock that was granted in that moment ends with the connection; a lease, after
	// four timeouts at most, since it gets its length only when its grant is known.
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
	// Retries is how often a request is sent again when no answer came: on a new
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
	// daemon's last sign, and 8.5 s after the request for it.
	OnLost func(*Held)
}

// WishAll is what is asked for when it is several locks.
type WishAll struct {
	// Wait and TTL are as Wish has them.
	Wait, TTL time.Duration
	// OnLost is called once, in a goroutine of its own, when one of the locks is lost.
	OnLost func(*HeldAll)
}

// Locks takes locks at one daemon. It may be used by many goroutines.
type Locks struct {
	options   redis.Options
	settings  Settings
	addresses *addresses
}

// New gives the locks of the daemon at options.Addr, of whose addresses each is tried for
// 1 s at most unless options have a Dialer; user, password, TLS and
// Dialer are taken from options, what has to do with pools and repeated sending is not.
func New(options *redis.Options, settings Settings) *Locks {
	if settings.Timeout <= 0 {
		settings.Timeout = 5 * time.Second
	}
	return &Locks{options: *options, settings: settings, addresses: &addresses{}}
}

// Acquire waits for a lock. The end of ctx while it waits takes it out of the
// line. Errors: ErrNotGranted, ErrNoAnswer, *Refused, that of ctx, or ErrLost if
// a lease ended before its grant was known.
func (l *Locks) Acquire(ctx context.Context, name string, wish Wish) (*Held, error) {
	if err := wish.check(); err != nil {
		return nil, err
	}
	held := &Held{Name: name}
	ttl := wish.TTL.Milliseconds()
	kept, err := l.take(ctx, wish.request(name), func(reply any) grant {
		held.Token, _ = reply.(int64)
		return grant{
			title:   fmt.Sprintf("%s (token %d)", name, held.Token),
			renewal: [][]any{{"RENEW", name, held.Token, "TTL", ttl}},
			ending:  [][]any{{"UNLOCK", name, held.Token}},
		}
	})
	if err != nil {
		return nil, err
	}
	held.kept = kept
	held.start(calling(wish.OnLost, held))
	return held, nil
}

// AcquireAll waits for several exclusive locks, all or none. Two programs that
// both use it do not block each other, in whatever order they name the locks.
// Errors are those of Acquire.
func (l *Locks) AcquireAll(ctx context.Context, names []string, wish WishAll) (*HeldAll, error) {
	if err := checkTimes(wish.Wait, wish.TTL); err != nil {
		return nil, err
	}
	held := &HeldAll{Names: slices.Clone(names), Tokens: make(map[string]int64, len(names))}
	ask := request{name: strings.Join(names, ", "), wait: wish.Wait, ttl: wish.TTL}
	ask.words = []any{"LOCKALL", len(names)}
	for _, name := range names {
		ask.words = append(ask.words, name)
	}
	kept, err := l.take(ctx, ask, func(reply any) grant {
		tokens, _ := reply.([]any)
		all := grant{title: fmt.Sprintf("%s (tokens %v)", ask.name, tokens)}
		for i, token := range tokens {
			name := names[i]
			held.Tokens[name], _ = token.(int64)
			all.renewal = append(all.renewal, []any{"RENEW", name, token, "TTL", wish.TTL.Milliseconds()})
			all.ending = append(all.ending, []any{"UNLOCK", name, token})
		}
		return all
	})
	if err != nil {
		return nil, err
	}
	held.kept = kept
	held.start(calling(wish.OnLost, held))
	return held, nil
}

// calling is a callback with its argument, if there is one.
func calling[T any](call func(T), with T) func() {
	if call == nil {
		return nil
	}
	return func() { call(with) }
}

func checkTimes(wait, ttl time.Duration) error {
	switch {
	case wait < 0 && wait != Forever:
		return errors.New("lock: Wait is at least 0, or Forever")
	case ttl < 0 || (ttl > 0 && ttl < 10*time.Millisecond):
		return errors.New("lock: TTL is at least 10 ms, or 0 for no lease")
	}
	return nil
}

func (w *Wish) check() error {
	if w.Of < 0 || (w.Shared && w.Of > 1) {
		return errors.New("lock: shared locks have no places: give Shared or Of")
	}
	return checkTimes(w.Wait, w.TTL)
}

// mode is what the daemon calls such a hold.
func (w *Wish) mode() string {
	switch {
	case w.Shared:
		return "shared"
	case w.Of > 1:
		return "place"
	}
	return "exclusive"
}

func (w *Wish) request(name string) request {
	words := []any{"LOCK", name}
	if w.Shared {
		words = append(words, "SHARED")
	}
	if w.Of > 1 {
		words = append(words, "OF", w.Of)
	}
	return request{name: name, wait: w.Wait, ttl: w.TTL, words: words}
}

// request is a LOCK or LOCKALL without its times.
type request struct {
	name      string // For errors.
	wait, ttl time.Duration
	words     []any
}

func (l *Locks) line() *line { return newLine(&l.options, l.settings.Timeout, l.addresses) }

// tryOften gives an attempt a connection of its own, and closes it if it fails.
func tryOften[T any](ctx context.Context, l *Locks, attempt func(*line) (T, error)) (T, error) {
	for left := l.settings.Retries; ; left-- {
		line := l.line()
		made, err := attempt(line)
		if err == nil {
			return made, nil
		}
		line.close()
		if left <= 0 || !errors.Is(err, ErrNoAnswer) {
			return made, err
		}
		// A daemon that starts again needs a moment.
		select {
		case <-time.After(l.settings.Timeout / 4):
		case <-ctx.Done():
			return made, ctx.Err()
		}
	}
}

// take sends a request on a connection of its own, which stays open if it is granted.
func (l *Locks) take(ctx context.Context, ask request, granted func(any) grant) (*kept, error) {
	end := time.Now().Add(ask.wait)
	return tryOften(ctx, l, func(line *line) (*kept, error) {
		sent := time.Now()
		// A grant whose answer does not arrive leaves a lease that nobody knows
		// of. Taken for four timeouts at most, it does not keep others out for long; by
		// default it survives a change of the member that serves.
		first := min(ask.ttl, 4*l.settings.Timeout)
		reply, err := l.wait(ctx, line, ask, first, end)
		if err != nil {
			return nil, err
		}
		k := &kept{grant: granted(reply), ttl: ask.ttl, locks: l, line: line}
		k.term = newTerm(ask.ttl, first, l.settings.Timeout, sent)
		if k.term.isLate() {
			return k, k.begin(ctx)
		}
		return k, nil
	})
}

// wait sends a request with its times; the reply, once it is granted.
func (l *Locks) wait(
	ctx context.Context, line *line, ask request, first time.Duration, end time.Time,
) (any, error) {
	words, limit := slices.Clone(ask.words), time.Duration(0)
	if first > 0 {
		words = append(words, "TTL", first.Milliseconds())
	}
	if ask.wait != Forever {
		left := max(time.Until(end), 0)
		limit = left + l.settings.Timeout
		words = append(words, "WAIT", left.Milliseconds())
	}
	reply, err := line.ask(ctx, limit, words...)
	if errors.Is(err, redis.Nil) {
		err = fmt.Errorf("%w: %s: taken by others for %v", ErrNotGranted, ask.name, ask.wait)
	}
	return reply, err
}
