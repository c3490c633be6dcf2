package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode"
)

// SessionWish is what is asked for when it is a session.
type SessionWish struct {
	// TTL is how long it lasts without a renewal; it is renewed at a third of it.
	TTL time.Duration
	// ID takes up a session that was opened before, by this program or by one that
	// has ended, with the same TTL. Empty, a new one is opened.
	ID string
	// OnLost is called once, in a goroutine of its own, when the session is lost
	// before it is closed, as that of a lease.
	OnLost func(*Session)
}

// Session owns many locks, and is renewed for all of them. IsLost, Err and Lost
// are for all of its locks alike.
type Session struct {
	// ID is what SessionWish.ID takes up again; only the same user can. Keep it secret.
	ID string
	*kept
	errands errands
	known   known
}

// Session opens a session, or takes one up. Errors: ErrNoAnswer, *Refused, that
// of ctx, or ErrLost if a session that is to be taken up is over.
func (l *Locks) Session(ctx context.Context, wish SessionWish) (*Session, error) {
	if wish.TTL < 10*time.Millisecond {
		return nil, errors.New("lock: a session's TTL is at least 10 ms")
	}
	session, err := tryOften(ctx, l, func(line *line) (*Session, error) {
		sent, id := time.Now(), wish.ID
		words := []any{"SESSION", "OPEN", "TTL", wish.TTL.Milliseconds(), "AS", opener()}
		if id != "" {
			words = []any{"SESSION", "RENEW", id}
		}
		reply, err := line.ask(ctx, l.settings.Timeout, words...)
		var refused *Refused
		if id != "" && errors.As(err, &refused) {
			return nil, fmt.Errorf("%w: %s: %w", ErrLost, titleOf(id), err)
		}
		if err != nil {
			return nil, err
		}
		if id == "" {
			id, _ = reply.(string)
		}
		k := &kept{ttl: wish.TTL, locks: l, line: line}
		k.grant = grant{
			title:   titleOf(id),
			renewal: [][]any{{"SESSION", "RENEW", id}},
			ending:  [][]any{{"SESSION", "CLOSE", id}},
		}
		k.term = newTerm(wish.TTL, wish.TTL, l.settings.Timeout, sent)
		return &Session{ID: id, kept: k, errands: errands{locks: l}}, nil
	})
	if err != nil {
		return nil, err
	}
	session.start(calling(wish.OnLost, session))
	return session, nil
}

// opener is who opens a session, for people. Arguments may be secret.
func opener() string {
	user := os.Getenv("LOGNAME")
	if user == "" {
		user = "?"
	}
	host, _ := os.Hostname()
	text := fmt.Sprintf("%s@%s pid %d %s", user, host, os.Getpid(), filepath.Base(os.Args[0]))
	text = strings.Map(func(letter rune) rune {
		if unicode.IsControl(letter) {
			return -1
		}
		return letter
	}, text)
	return strings.ToValidUTF8(text[:min(255, len(text))], "")
}

// titleOf does not let the readers of a log take the session up.
func titleOf(id string) string { return "session " + id[:min(8, len(id))] + "..." }

// Acquire waits for a lock of this session, as that of Locks does; Wish.TTL and
// Wish.OnLost are the session's. Errors: ErrNotGranted, ErrNoAnswer, *Refused,
// that of ctx, or ErrLost if the session is over.
//
// After ErrNoAnswer or the end of ctx the session may have the lock. Acquire it again:
// that gives the lock with its token if the session has it, and waits for it otherwise.
func (s *Session) Acquire(ctx context.Context, name string, wish Wish) (*SessionHeld, error) {
	if wish.TTL != 0 || wish.OnLost != nil {
		return nil, errors.New("lock: a lock of a session has no TTL and no OnLost: the session has")
	}
	if err := wish.check(); err != nil {
		return nil, err
	}
	if err := s.open(); err != nil {
		return nil, err
	}
	ask, end := wish.request(name), time.Now().Add(wish.Wait)
	ask.words = append(ask.words, "SESSION", s.ID)
	s.known.ask(name)
	defer s.known.forget(name)
	reply, err := tryOften(ctx, s.locks, func(line *line) (any, error) {
		defer line.close() // The session owns the lock.
		reply, err := s.locks.wait(ctx, line, ask, 0, end)
		var refused *Refused
		if err != nil && !errors.Is(err, ErrNotGranted) && !errors.As(err, &refused) {
			s.known.doubt(name)
		}
		return reply, err
	})
	var refused *Refused
	if errors.As(err, &refused) && strings.HasPrefix(refused.Message, "NOSESSION") {
		s.lose(err)
		return nil, s.as(err)
	}
	token, _ := reply.(int64)
	if refused != nil {
		var adopted bool
		if token, adopted = s.known.adopt(name, wish.mode(), refused.Message); !adopted {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	} else if !s.known.claim(name, token) {
		// Another request was in doubt, and has taken this grant for its own.
		const by = "ALREADYHELD %d %s by another part of this program"
		return nil, &Refused{Message: fmt.Sprintf(by, token, wish.mode())}
	}
	if err := s.open(); err != nil {
		return nil, err // It ended when the grant was on its way.
	}
	return &SessionHeld{Name: name, Token: token, session: s, claimed: true}, nil
}

// Held is a lock that the session was granted before it was taken up by its ID.
func (s *Session) Held(name string, token int64) *SessionHeld {
	claimed := s.known.claim(name, token)
	return &SessionHeld{Name: name, Token: token, session: s, claimed: claimed}
}

// Close ends the session, and all locks that it still has. If it returns nil, the
// daemon has confirmed that the session lasted until now; otherwise the error is
// an ErrLost. A second call does nothing.
func (s *Session) Close(ctx context.Context) error {
	defer s.errands.close()
	return s.finish(ctx)
}

// open is an error once the session is lost or closed.
func (s *Session) open() error {
	if err := s.Err(); err != nil {
		return err
	}
	if s.isOver() {
		return s.as(errClosed)
	}
	return nil
}

var errClosed = errors.New("it was closed")

// SessionHeld is a lock of a session; call Release when done.
type SessionHeld struct {
	// Name of the lock.
	Name string
	// Token is the fencing token: larger than that of every earlier grant.
	Token   int64
	session *Session

	guard    sync.Mutex
	reason   error // Why it is lost.
	released bool
	claimed  bool // Whether the session knows it as this one's.
}

// IsLost says whether somebody else may hold the lock by now.
func (h *SessionHeld) IsLost() bool { return h.Err() != nil }

// Lost is closed when the session is lost, and the lock with it.
func (h *SessionHeld) Lost() <-chan struct{} { return h.session.Lost() }

// Err is nil while the lock is held, and an ErrLost once it is lost.
func (h *SessionHeld) Err() error {
	h.guard.Lock()
	defer h.guard.Unlock()
	if h.reason != nil || h.released {
		return h.reason
	}
	return h.session.open()
}

// Release gives the lock back. Errors: ErrLost if it was not held until now. After
// ErrNoAnswer or the end of ctx the session may still have it: release it again.
func (h *SessionHeld) Release(ctx context.Context) error {
	if err := h.Err(); err != nil {
		return err
	}
	h.guard.Lock()
	defer h.guard.Unlock()
	if h.released {
		return nil
	}
	err := h.session.errands.ask(ctx, "UNLOCK", h.Name, h.Token)
	var refused *Refused
	if errors.As(err, &refused) {
		h.reason = fmt.Errorf("%w: %s (token %d): %w", ErrLost, h.Name, h.Token, err)
		h.forget()
		return h.reason
	}
	if err == nil {
		h.released = true
		h.forget()
	}
	return err
}

func (h *SessionHeld) forget() {
	if h.claimed {
		h.claimed = false
		h.session.known.forget(h.Name)
	}
}

// errands has a connection for commands that do not wait; opened when needed.
type errands struct {
	locks *Locks
	guard sync.Mutex
	line  *line
}

// ask gives *Refused, ErrNoAnswer, or the error of ctx. A connection that has
// ended is replaced once.
func (e *errands) ask(ctx context.Context, words ...any) error {
	e.guard.Lock()
	defer e.guard.Unlock()
	limit := e.locks.settings.Timeout
	if e.line != nil {
		if _, err := e.line.ask(ctx, limit, words...); !errors.Is(err, ErrNoAnswer) {
			return err
		}
	}
	e.line = e.locks.line()
	_, err := e.line.ask(ctx, limit, words...)
	return err
}

func (e *errands) close() {
	e.guard.Lock()
	defer e.guard.Unlock()
	if e.line != nil {
		e.line.close()
	}
}
