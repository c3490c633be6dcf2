package lock

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func (w *world) session(locks *Locks, wish SessionWish) *Session {
	w.Helper()
	session, err := locks.Session(background, wish)
	if err != nil {
		w.Fatal(err)
	}
	return session
}

func (w *world) within(session *Session, name string, wish Wish) *SessionHeld {
	w.Helper()
	held, err := session.Acquire(background, name, wish)
	if err != nil {
		w.Fatal(err)
	}
	return held
}

func TestASessionOwnsItsLocksUntilItIsClosed(t *testing.T) {
	w := newWorld(t)
	session := w.session(w.locks, SessionWish{TTL: time.Minute})
	a, b := w.within(session, "a", Wish{}), w.within(session, "b", Wish{Of: 2})
	if b.Token <= a.Token {
		t.Fatal(a.Token, b.Token)
	}
	for range 2 { // The second time nothing happens.
		if err := a.Release(background); err != nil {
			t.Fatal(err)
		}
	}
	w.release(w.acquire("a", Wish{}))
	other := w.session(w.locks, SessionWish{TTL: time.Minute})
	w.within(other, "b", Wish{Of: 2})
	w.refuses(ErrNotGranted, "b", Wish{Of: 2})
	_, err := session.Acquire(background, "b", Wish{Of: 2})
	w.refused("ALREADYHELD", err)
	c := w.within(session, "c", Wish{})
	_, err = other.Acquire(background, "c", Wish{Wait: 50 * time.Millisecond})
	w.is(ErrNotGranted, err)
	if c.IsLost() || w.daemon.info("holds") != 3 || w.daemon.info("sessions") != 2 {
		t.Fatal(c.Err())
	}
	for range 2 {
		if err := session.Close(background); err != nil {
			t.Fatal(err)
		}
	}
	_, err = session.Acquire(background, "d", Wish{})
	w.is(errClosed, err)
	w.is(ErrLost, c.Release(background))
	if err := other.Close(background); err != nil {
		t.Fatal(err)
	}
	w.eventuallyIs("sessions", 0)
	w.daemon.settles()
	w.eventuallyIs("connected_clients", 1)
}

func TestOneRenewalIsEnoughForAllLocksOfASession(t *testing.T) {
	w := newWorld(t)
	session := w.session(w.locks, SessionWish{TTL: 3 * time.Second})
	for n := range 20 {
		w.within(session, fmt.Sprint(n), Wish{})
	}
	before := w.daemon.info("cmd_session")
	eventually(t, "renewals", func() bool { return w.daemon.info("cmd_session") >= before+4 })
	if holds := w.daemon.info("holds"); holds != 20 || session.IsLost() {
		t.Fatal(holds, session.Err())
	}
}

func TestWhoWaitsInTheNameOfASessionThatEndsIsTold(t *testing.T) {
	w := newWorld(t)
	var told atomic.Int32
	session := w.session(w.locks, SessionWish{TTL: time.Hour, OnLost: func(*Session) { told.Add(1) }})
	held := w.within(session, "other", Wish{})
	w.acquire("job", Wish{})
	ended := make(chan error)
	go func() {
		_, err := session.Acquire(background, "job", Wish{Wait: time.Minute})
		ended <- err
	}()
	w.eventuallyIs("waiters", 1)
	w.daemon.ask("SESSION CLOSE " + session.ID)
	err := <-ended
	w.is(ErrLost, err)
	w.refused("NOSESSION", err)
	if strings.Contains(err.Error(), session.ID) {
		t.Fatalf("the whole id is in %q", err)
	}
	<-held.Lost()
	w.is(ErrLost, held.Release(background))
	w.is(ErrLost, session.Close(background))
	eventually(t, "told", func() bool { return told.Load() == 1 })
}

func TestALockOfASessionThatWasTakenAwayIsReportedByItsRelease(t *testing.T) {
	w := newWorld(t)
	session := w.session(w.locks, SessionWish{TTL: time.Minute})
	held := w.within(session, "job", Wish{})
	w.daemon.ask("FORCEUNLOCK job")
	w.is(ErrLost, held.Release(background))
	if !held.IsLost() || session.IsLost() {
		t.Fatal(held.Err(), session.Err())
	}
}

func TestSessionsThatMakeNoSenseAreTold(t *testing.T) {
	w := newWorld(t)
	_, err := w.locks.Session(background, SessionWish{TTL: time.Minute, ID: strings.Repeat("0", 32)})
	w.is(ErrLost, err)
	w.refused("NOSESSION", err)
	if _, err := w.locks.Session(background, SessionWish{}); err == nil {
		t.Fatal("a session without a TTL")
	}
	session := w.session(w.locks, SessionWish{TTL: time.Minute})
	for _, wrong := range []Wish{{TTL: time.Second}, {OnLost: func(*Held) {}}, {Wait: -5}} {
		if _, err := session.Acquire(background, "job", wrong); err == nil {
			t.Errorf("%+v", wrong)
		}
	}
}

func TestASessionIsLostWithAllItsLocks(t *testing.T) {
	ttls := []time.Duration{1500 * time.Millisecond}
	inEach(t, []string{"stopped", "cut off", "killed"}, ttls, func(w *world, fault string, ttl time.Duration) {
		var told atomic.Int32
		session := w.session(w.locks, SessionWish{TTL: ttl, OnLost: func(*Session) { told.Add(1) }})
		held := []*SessionHeld{w.within(session, "a", Wish{}), w.within(session, "b", Wish{})}
		w.begin(fault)
		eventually(w.T, "lost", func() bool { return session.IsLost() && told.Load() == 1 })
		for _, one := range held {
			w.is(ErrLost, one.Err())
			w.is(ErrLost, one.Release(background))
		}
		_, err := session.Acquire(background, "c", Wish{})
		w.is(ErrLost, err)
		w.is(ErrLost, session.Close(background))
		if fault != "killed" {
			w.end(fault)
			w.daemon.settles()
			w.eventuallyIs("sessions", 0)
		}
		if told.Load() != 1 {
			w.Fatal("told twice")
		}
	})
}

func TestWhoGivesUpWaitingInASessionLeavesTheLine(t *testing.T) {
	ttls := []time.Duration{10 * time.Minute}
	inEach(t, []string{"stopped", "cut off"}, ttls, func(w *world, fault string, ttl time.Duration) {
		first, err := w.direct().Acquire(background, "job", Wish{})
		if err != nil {
			w.Fatal(err)
		}
		session := w.session(w.locks, SessionWish{TTL: ttl})
		held := w.within(session, "other", Wish{})
		ended := make(chan error)
		go func() {
			_, err := session.Acquire(background, "job", Wish{Wait: time.Second})
			ended <- err
		}()
		w.eventuallyIs("waiters", 1)
		w.begin(fault)
		w.is(ErrNoAnswer, <-ended)
		w.is(ErrNoAnswer, held.Release(background)) // The session may still have it.
		if held.IsLost() {
			w.Fatal(held.Err())
		}
		w.end(fault)
		w.eventuallyIs("waiters", 0)
		w.release(first)
		if err := session.Close(background); err != nil {
			w.Fatal(err)
		}
		w.daemon.settles()
	})
}

func TestARequestWhoseAnswerWasLostFindsItsLock(t *testing.T) {
	for _, wish := range []Wish{{}, {Shared: true}, {Of: 3}} {
		t.Run(wish.mode(), func(t *testing.T) {
			w := newWorld(t)
			session := w.session(w.locks, SessionWish{TTL: time.Minute})
			w.link.loseAnswerTo("LOCK")
			_, err := session.Acquire(background, "job", wish)
			w.is(ErrNoAnswer, err)
			if held := w.within(session, "job", wish); held.Token != 1 || w.daemon.info("holds") != 1 {
				w.Fatal(held.Token)
			} else {
				// It is one lock, held once: who asks beside it is refused.
				_, err = session.Acquire(background, "job", wish)
				w.refused("ALREADYHELD 1 "+wish.mode(), err)
				if err := held.Release(background); err != nil {
					w.Fatal(err)
				}
			}
			w.daemon.settles()
			if again := w.within(session, "job", wish); again.Token != 2 {
				w.Fatal(again.Token)
			}
		})
	}
}

func TestARetryFindsTheLockOfTheRequestThatItRepeats(t *testing.T) {
	w := newWorld(t)
	locks := New(&redis.Options{Addr: w.link.address()}, Settings{Timeout: time.Second, Retries: 1})
	session := w.session(locks, SessionWish{TTL: time.Minute})
	w.link.loseAnswerTo("LOCK")
	held := w.within(session, "job", Wish{})
	if grants := w.daemon.info("grants"); held.Token != 1 || grants != 1 {
		t.Fatal(held.Token, grants)
	}
	if err := held.Release(background); err != nil {
		t.Fatal(err)
	}
	w.daemon.settles()
}

func TestARetryDoesNotWaitForTheRequestThatItRepeats(t *testing.T) {
	w := newWorld(t)
	session := w.session(w.locks, SessionWish{TTL: time.Minute})
	other := w.acquire("job", Wish{})
	// To the daemon this looks like the request of a connection behind a cut link.
	first, err := net.Dial("tcp", w.daemon.address)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	_, _ = fmt.Fprintf(first, "LOCK job SESSION %s\r\n", session.ID)
	w.eventuallyIs("waiters", 1)
	session.known.doubt("job")
	found := make(chan *SessionHeld)
	go func() {
		held, _ := session.Acquire(background, "job", Wish{Wait: Forever})
		found <- held
	}()
	w.eventuallyIs("waiters", 2)
	w.release(other)
	if held := <-found; held == nil || held.Token != 2 {
		t.Fatal(held)
	}
}

func TestALostAnswerIsClaimedByOneAlone(t *testing.T) {
	w := newWorld(t)
	session := w.session(w.locks, SessionWish{TTL: time.Minute})
	w.link.loseAnswerTo("LOCK")
	_, err := session.Acquire(background, "job", Wish{Shared: true})
	w.is(ErrNoAnswer, err)
	_, err = session.Acquire(background, "job", Wish{}) // Another kind of lock.
	w.refused("ALREADYHELD 1 shared", err)
	found := make(chan error)
	for range 8 {
		go func() {
			_, err := session.Acquire(background, "job", Wish{Shared: true})
			found <- err
		}()
	}
	claimed := 0
	for range 8 {
		if err := <-found; err == nil {
			claimed++
		} else {
			w.refused("ALREADYHELD 1 shared", err)
		}
	}
	if claimed != 1 {
		t.Fatal(claimed)
	}
}

func TestASessionThatIsTakenUpClaimsNoLockThatItDidNotAskFor(t *testing.T) {
	w := newWorld(t)
	first := w.session(w.locks, SessionWish{TTL: time.Minute})
	token := w.within(first, "job", Wish{}).Token
	second := w.session(w.locks, SessionWish{TTL: time.Minute, ID: first.ID})
	_, err := second.Acquire(background, "job", Wish{})
	w.refused("ALREADYHELD 1 exclusive", err)
	if err := second.Held("job", token).Release(background); err != nil {
		t.Fatal(err)
	}
	w.within(second, "job", Wish{})
}

func TestASessionOutlivesALinkThatIsCutForAMoment(t *testing.T) {
	w := newWorld(t)
	session := w.session(w.locks, SessionWish{TTL: 3 * time.Second})
	held := w.within(session, "job", Wish{})
	opened := w.link.opened()
	w.begin("cut off")
	eventually(t, "another connection", func() bool { return w.link.opened() > opened })
	w.end("cut off")
	before := w.daemon.info("cmd_session")
	eventually(t, "a renewal", func() bool { return w.daemon.info("cmd_session") > before })
	if err := held.Release(background); err != nil {
		t.Fatal(err)
	}
}

func TestASessionThatIsTakenUpAgainKeepsItsLocks(t *testing.T) {
	w := newWorld(t)
	wish := SessionWish{TTL: 3 * time.Second}
	first := w.session(w.locks, wish)
	token := w.within(first, "job", Wish{}).Token
	direct := New(&redis.Options{Addr: w.daemon.address}, Settings{})
	wish.ID = first.ID
	session := w.session(direct, wish)
	w.begin("cut off")
	// Renewed over the other connection alone, for longer than it lasts.
	eventually(t, "the first one is lost", first.IsLost)
	before := w.daemon.info("cmd_session")
	eventually(t, "renewals", func() bool { return w.daemon.info("cmd_session") >= before+3 })
	_, err := direct.Acquire(background, "job", Wish{})
	w.is(ErrNotGranted, err)
	if err := session.Held("job", token).Release(background); err != nil {
		t.Fatal(err)
	}
	if again := w.within(session, "job", Wish{}); again.Token <= token {
		t.Fatal(again.Token, token)
	}
	if err := session.Close(background); err != nil {
		t.Fatal(err)
	}
	w.end("cut off")
	w.daemon.settles()
}
