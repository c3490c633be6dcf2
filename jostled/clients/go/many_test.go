package lock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var bothWays = []time.Duration{0, time.Minute}

func (w *world) acquireAll(wish WishAll, names ...string) *HeldAll {
	w.Helper()
	held, err := w.locks.AcquireAll(background, names, wish)
	if err != nil {
		w.Fatal(err)
	}
	return held
}

func (w *world) is(wanted, err error) {
	w.Helper()
	if !errors.Is(err, wanted) {
		w.Fatalf("%v in place of %v", err, wanted)
	}
}

// refused wants an error with which the daemon answered.
func (w *world) refused(class string, err error) {
	w.Helper()
	var refused *Refused
	if !errors.As(err, &refused) || !strings.HasPrefix(refused.Message, class) {
		w.Fatalf("%v in place of %s", err, class)
	}
}

func (w *world) eventuallyIs(name string, wanted int) {
	w.Helper()
	eventually(w.T, fmt.Sprintf("%s %d", name, wanted), func() bool { return w.daemon.info(name) == wanted })
}

func TestSeveralAreGrantedAllOrNoneAndTokensGrow(t *testing.T) {
	w := newWorld(t)
	last := int64(0)
	for _, ttl := range bothWays {
		held := w.acquireAll(WishAll{TTL: ttl}, "a", "b", "c")
		if !reflect.DeepEqual(held.Names, []string{"a", "b", "c"}) || len(held.Tokens) != 3 {
			t.Fatalf("%v %v", held.Names, held.Tokens)
		}
		for _, name := range held.Names {
			if held.Tokens[name] <= last {
				t.Fatalf("%v after %d", held.Tokens, last)
			}
			last = held.Tokens[name]
		}
		for _, wait := range []time.Duration{0, 50 * time.Millisecond} {
			_, err := w.locks.AcquireAll(background, []string{"d", "c"}, WishAll{Wait: wait})
			w.is(ErrNotGranted, err)
		}
		w.release(w.acquire("d", Wish{}))
		w.refuses(ErrNotGranted, "b", Wish{})
		if holds := w.daemon.info("holds"); holds != 3 || held.IsLost() {
			t.Fatal(holds, held.Err())
		}
		for range 2 { // The second time nothing happens.
			if err := held.Release(background); err != nil {
				t.Fatal(err)
			}
		}
		w.daemon.settles()
	}
}

func TestSeveralAreTakenInAnyOrderWithoutADeadlock(t *testing.T) {
	w := newWorld(t)
	var inside [3]atomic.Int32
	var counted atomic.Int32
	var all sync.WaitGroup
	for _, order := range [][]int{{0, 1}, {1, 0}, {1, 2}, {2, 0}} {
		names := []string{fmt.Sprint(order[0]), fmt.Sprint(order[1])}
		all.Add(1)
		go func() {
			defer all.Done()
			for range 20 {
				held, err := w.locks.AcquireAll(background, names, WishAll{Wait: time.Minute, TTL: time.Minute})
				if err != nil {
					t.Error(err)
					return
				}
				for _, at := range order {
					if inside[at].Add(1) == 1 {
						counted.Add(1)
					}
				}
				for _, at := range order {
					inside[at].Add(-1)
				}
				if err := held.Release(background); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	all.Wait()
	if counted.Load() != 160 {
		t.Fatalf("%d of 160 were alone", counted.Load())
	}
}

func TestEveryLeaseIsRenewedAndAllAreLostWhenOneIs(t *testing.T) {
	w := newWorld(t)
	var told atomic.Int32
	held := w.acquireAll(WishAll{TTL: 3 * time.Second, OnLost: func(*HeldAll) { told.Add(1) }}, "a", "b")
	eventually(t, "renewals", func() bool { return w.daemon.info("renewals") >= 6 })
	if held.IsLost() || w.daemon.info("expirations") != 0 {
		t.Fatal(held.Err())
	}
	w.daemon.ask("FORCEUNLOCK b")
	eventually(t, "told", func() bool { return told.Load() == 1 })
	w.refused("NOTOWNER", held.Err())
	w.is(ErrLost, held.Release(background))
}

func TestAReleaseReportsWhatWasTakenAwayAndGivesBackTheRest(t *testing.T) {
	w := newWorld(t)
	for _, ttl := range bothWays {
		held := w.acquireAll(WishAll{TTL: ttl}, "a", "b", "c")
		w.daemon.ask("FORCEUNLOCK a")
		err := held.Release(background)
		w.is(ErrLost, err)
		w.refused("NOT", err)
		w.daemon.settles()
	}
}

func TestSeveralThatTheDaemonDoesNotTakeAreRefused(t *testing.T) {
	w := newWorld(t)
	for _, wrong := range [][]string{nil, {"a", "a"}, make([]string, 65)} {
		_, err := w.locks.AcquireAll(background, wrong, WishAll{})
		w.refused("ERR LOCKALL takes", err)
	}
	for _, wrong := range []WishAll{{Wait: -5}, {TTL: 1}} {
		if _, err := w.locks.AcquireAll(background, []string{"a"}, wrong); err == nil {
			t.Errorf("%+v", wrong)
		}
	}
	w.daemon.settles()
}

func TestAContextThatEndsLeavesAllLines(t *testing.T) {
	w := newWorld(t)
	held := w.acquire("b", Wish{})
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	ended := make(chan error)
	go func() {
		_, err := w.locks.AcquireAll(ctx, []string{"a", "b"}, WishAll{Wait: Forever})
		ended <- err
	}()
	w.eventuallyIs("waiters", 2)
	cancel()
	w.is(context.Canceled, <-ended)
	w.eventuallyIs("waiters", 0)
	w.release(w.acquire("a", Wish{}))
	w.release(held)
}

func TestSoManyGetInAndNoMore(t *testing.T) {
	w := newWorld(t)
	for _, ttl := range bothWays {
		var inside, most, done atomic.Int32
		leave := make(chan struct{})
		for range 8 {
			go func() {
				defer done.Add(1)
				held, err := w.locks.Acquire(background, "seat", Wish{Of: 3, Wait: time.Minute, TTL: ttl})
				if err != nil {
					t.Error(err)
					return
				}
				for now, seen := inside.Add(1), most.Load(); now > seen && !most.CompareAndSwap(seen, now); {
					seen = most.Load()
				}
				<-leave
				inside.Add(-1)
				if err := held.Release(background); err != nil {
					t.Error(err)
				}
			}()
		}
		eventually(t, "three are in", func() bool { return inside.Load() == 3 })
		w.eventuallyIs("waiters", 5)
		w.refuses(ErrNotGranted, "seat", Wish{Of: 3})
		_, err := w.locks.Acquire(background, "seat", Wish{Of: 4})
		w.refused("BADLIMIT", err)
		close(leave)
		eventually(t, "all are done", func() bool { return done.Load() == 8 })
		if most.Load() != 3 {
			t.Fatalf("%d were in at a time", most.Load())
		}
		w.daemon.settles()
	}
}

func TestAHolderOfSeveralIsToldThatTheyAreLost(t *testing.T) {
	ttls := []time.Duration{0, 1500 * time.Millisecond}
	inEach(t, []string{"stopped", "cut off", "killed"}, ttls, func(w *world, fault string, ttl time.Duration) {
		var told atomic.Int32
		held := w.acquireAll(WishAll{TTL: ttl, OnLost: func(*HeldAll) { told.Add(1) }}, "a", "b")
		w.begin(fault)
		eventually(w.T, "lost", func() bool { return held.IsLost() && told.Load() == 1 })
		w.is(ErrLost, held.Release(background))
		if fault != "killed" {
			w.end(fault)
			w.daemon.settles()
		}
		if told.Load() != 1 {
			w.Fatal("told twice")
		}
	})
}

func TestNothingStaysBehindWhenSeveralAreNotAnswered(t *testing.T) {
	ttls := []time.Duration{0, 10 * time.Minute}
	inEach(t, []string{"stopped", "cut off"}, ttls, func(w *world, fault string, ttl time.Duration) {
		w.begin(fault)
		_, err := w.locks.AcquireAll(background, []string{"a", "b"}, WishAll{TTL: ttl, Wait: time.Second / 10})
		w.is(ErrNoAnswer, err)
		w.end(fault)
		w.daemon.settles()
	})
}

func TestWhoGivesUpWaitingForSeveralLeavesAllLines(t *testing.T) {
	ttls := []time.Duration{0, 10 * time.Minute}
	inEach(t, []string{"stopped", "cut off"}, ttls, func(w *world, fault string, ttl time.Duration) {
		first, err := w.direct().Acquire(background, "b", Wish{})
		if err != nil {
			w.Fatal(err)
		}
		ended := make(chan error)
		go func() {
			_, err := w.locks.AcquireAll(background, []string{"a", "b"}, WishAll{TTL: ttl, Wait: time.Second})
			ended <- err
		}()
		w.eventuallyIs("waiters", 2)
		w.begin(fault)
		w.is(ErrNoAnswer, <-ended)
		w.end(fault)
		w.eventuallyIs("waiters", 0)
		w.release(w.acquire("a", Wish{}))
		w.release(first)
		w.daemon.settles()
	})
}
