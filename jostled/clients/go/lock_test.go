package lock

import (
	"context"
	"errors"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var background = context.Background()

// world is a daemon, a link to it, and its locks.
type world struct {
	*testing.T
	daemon *daemon
	link   *link
	locks  *Locks
}

func newWorld(t *testing.T) *world {
	t.Parallel()
	d := startDaemon(t)
	l := startLink(t, d)
	locks := New(&redis.Options{Addr: l.address()}, Settings{Timeout: time.Second})
	return &world{T: t, daemon: d, link: l, locks: locks}
}

func (w *world) acquire(name string, wish Wish) *Held {
	w.Helper()
	held, err := w.locks.Acquire(background, name, wish)
	if err != nil {
		w.Fatal(err)
	}
	return held
}

func (w *world) release(held *Held) {
	w.Helper()
	if err := held.Release(background); err != nil {
		w.Fatal(err)
	}
}

func (w *world) refuses(wanted error, name string, wish Wish) {
	w.Helper()
	if _, err := w.locks.Acquire(background, name, wish); !errors.Is(err, wanted) {
		w.Fatalf("%v in place of %v", err, wanted)
	}
}

// direct are locks that know nothing of the link.
func (w *world) direct() *Locks {
	return New(&redis.Options{Addr: w.daemon.address}, Settings{Timeout: time.Minute})
}

func (w *world) begin(fault string) {
	switch fault {
	case "killed":
		w.daemon.signal(syscall.SIGKILL)
	case "stopped":
		w.daemon.signal(syscall.SIGSTOP)
	case "cut off":
		w.link.set(true)
	}
}

func (w *world) end(fault string) {
	switch fault {
	case "stopped":
		w.daemon.signal(syscall.SIGCONT)
	case "cut off":
		w.link.set(false)
	}
}

// inEach tries all cases in worlds of their own.
func inEach(t *testing.T, faults []string, ttls []time.Duration, try func(*world, string, time.Duration)) {
	for _, fault := range faults {
		for _, ttl := range ttls {
			t.Run(fault+" "+ttl.String(), func(t *testing.T) { try(newWorld(t), fault, ttl) })
		}
	}
}

func TestALockExcludesAndTokensGrow(t *testing.T) {
	w := newWorld(t)
	last := int64(0)
	for _, ttl := range []time.Duration{0, time.Minute} {
		held := w.acquire("job", Wish{TTL: ttl})
		if held.Token <= last || held.IsLost() {
			t.Fatalf("token %d after %d, %v", held.Token, last, held.Err())
		}
		last = held.Token
		w.refuses(ErrNotGranted, "job", Wish{})
		w.refuses(ErrNotGranted, "job", Wish{Wait: 50 * time.Millisecond})
		w.release(held)
		w.release(held) // Nothing happens.
		w.daemon.settles()
	}
}

func TestGoroutinesCountWithoutLosingAStep(t *testing.T) {
	w := newWorld(t)
	locks, counter := w.direct(), 0
	var all sync.WaitGroup
	for range 5 {
		all.Add(1)
		go func() {
			defer all.Done()
			for range 20 {
				held, err := locks.Acquire(background, "counter", Wish{TTL: time.Minute, Wait: time.Minute})
				if err != nil {
					t.Error(err)
					return
				}
				counter++
				if err := held.Release(background); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	all.Wait()
	if counter != 100 {
		t.Fatal(counter)
	}
}

func TestReadersShareAndPlacesAreCounted(t *testing.T) {
	w := newWorld(t)
	shared, two := Wish{Shared: true}, Wish{Of: 2}
	w.acquire("book", shared)
	w.acquire("book", shared)
	w.refuses(ErrNotGranted, "book", Wish{})
	w.acquire("seat", two)
	w.acquire("seat", two)
	w.refuses(ErrNotGranted, "seat", two)
	_, err := w.locks.Acquire(background, "seat", Wish{Of: 3})
	var refused *Refused
	if !errors.As(err, &refused) || !strings.HasPrefix(refused.Message, "BADLIMIT") {
		t.Fatal(err)
	}
}

func TestALeaseIsRenewedWhileItIsHeld(t *testing.T) {
	w := newWorld(t)
	held := w.acquire("job", Wish{TTL: 3 * time.Second})
	eventually(t, "renewals", func() bool { return w.daemon.info("renewals") >= 3 })
	w.release(held)
	if w.daemon.info("expirations") != 0 {
		t.Fatal("it expired")
	}
}

func TestALockThatIsTakenAwayIsReported(t *testing.T) {
	w := newWorld(t)
	var told atomic.Int32
	held := w.acquire("job", Wish{TTL: 3 * time.Second, OnLost: func(*Held) { told.Add(1) }})
	w.daemon.ask("FORCEUNLOCK job")
	select {
	case <-held.Lost():
	case <-time.After(20 * time.Second):
		t.Fatal("not within 20 s")
	}
	eventually(t, "told", func() bool { return told.Load() == 1 })
	if err := held.Err(); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "NOTOWNER") {
		t.Fatal(err)
	}
}

func TestALockThatWasTakenAwayUnnoticedIsReportedByItsRelease(t *testing.T) {
	w := newWorld(t)
	held := w.acquire("job", Wish{})
	w.daemon.ask("FORCEUNLOCK job")
	if err := held.Release(background); !errors.Is(err, ErrLost) {
		t.Fatal(err)
	}
}

func TestAContextThatEndsLeavesTheLine(t *testing.T) {
	w := newWorld(t)
	held := w.acquire("job", Wish{})
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	ended := make(chan error)
	go func() {
		_, err := w.locks.Acquire(ctx, "job", Wish{Wait: Forever})
		ended <- err
	}()
	eventually(t, "it waits", func() bool { return w.daemon.info("waiters") == 1 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	eventually(t, "no waiters", func() bool { return w.daemon.info("waiters") == 0 })
	w.release(held)
}

func TestALeaseIsReleasedAlsoWithAContextThatHasEnded(t *testing.T) {
	w := newWorld(t)
	held := w.acquire("job", Wish{TTL: time.Hour})
	ended, end := context.WithCancel(background)
	end()
	if err := held.Release(ended); err != nil {
		t.Fatal(err)
	}
	w.release(w.acquire("job", Wish{}))
}

func TestAConnectionThatIsKilledIsALostLock(t *testing.T) {
	w := newWorld(t)
	held := w.acquire("job", Wish{})
	holder := w.daemon.ask("HOLDER job")
	_, after, _ := strings.Cut(holder, "client\r\n:")
	client, _, _ := strings.Cut(after, "\r\n")
	w.daemon.ask("CLIENT KILL ID " + client)
	// go-redis would open another connection, on which PING is answered.
	eventually(t, "lost", held.IsLost)
	if w.link.opened() != 1 {
		t.Fatal("another connection was opened")
	}
}

func TestALeaseIsRenewedAtOnceWhenItsConnectionBreaks(t *testing.T) {
	w := newWorld(t)
	// It would be renewed after 20 minutes.
	held := w.acquire("job", Wish{TTL: time.Hour})
	before := w.daemon.info("renewals")
	_, after, _ := strings.Cut(w.daemon.ask("HOLDER job"), "client\r\n:")
	client, _, _ := strings.Cut(after, "\r\n")
	w.daemon.ask("CLIENT KILL ID " + client)
	eventually(t, "a renewal", func() bool { return w.daemon.info("renewals") > before })
	w.release(held)
}

func TestWishesThatMakeNoSenseAreTold(t *testing.T) {
	locks := New(&redis.Options{Addr: "127.0.0.1:1"}, Settings{})
	for _, wrong := range []Wish{{Wait: -5}, {TTL: -1}, {TTL: 1}, {Shared: true, Of: 2}, {Of: -1}} {
		_, err := locks.Acquire(background, "job", wrong)
		if err == nil || errors.Is(err, ErrNoAnswer) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

func TestAHolderIsToldThatItsLockIsLost(t *testing.T) {
	ttls := []time.Duration{0, 1500 * time.Millisecond}
	inEach(t, []string{"stopped", "cut off", "killed"}, ttls, func(w *world, fault string, ttl time.Duration) {
		var told atomic.Int32
		held := w.acquire("job", Wish{TTL: ttl, OnLost: func(*Held) { told.Add(1) }})
		if held.IsLost() {
			w.Fatal(held.Err())
		}
		w.begin(fault)
		eventually(w.T, "lost", func() bool { return held.IsLost() && told.Load() == 1 })
		if err := held.Release(background); !errors.Is(err, ErrLost) {
			w.Fatal(err)
		}
		if fault != "killed" {
			w.end(fault)
			w.daemon.settles()
		}
		if told.Load() != 1 {
			w.Fatal("told twice")
		}
	})
}

func TestNothingStaysBehindWhenNoAnswerComes(t *testing.T) {
	ttls := []time.Duration{0, 10 * time.Minute}
	inEach(t, []string{"stopped", "cut off"}, ttls, func(w *world, fault string, ttl time.Duration) {
		w.begin(fault)
		w.refuses(ErrNoAnswer, "job", Wish{TTL: ttl, Wait: 100 * time.Millisecond})
		w.end(fault)
		w.daemon.settles()
	})
}

func TestAWaiterThatGivesUpLeavesTheLine(t *testing.T) {
	ttls := []time.Duration{0, 10 * time.Minute}
	inEach(t, []string{"stopped", "cut off"}, ttls, func(w *world, fault string, ttl time.Duration) {
		first, err := w.direct().Acquire(background, "job", Wish{})
		if err != nil {
			w.Fatal(err)
		}
		ended := make(chan error)
		go func() {
			_, err := w.locks.Acquire(background, "job", Wish{TTL: ttl, Wait: time.Second})
			ended <- err
		}()
		eventually(w.T, "it waits", func() bool { return w.daemon.info("waiters") == 1 })
		w.begin(fault)
		if err := <-ended; !errors.Is(err, ErrNoAnswer) {
			w.Fatal(err)
		}
		w.end(fault)
		eventually(w.T, "no waiters", func() bool { return w.daemon.info("waiters") == 0 })
		w.release(first)
		w.daemon.settles()
	})
}

func TestAKilledDaemonGivesNoAnswer(t *testing.T) {
	w := newWorld(t)
	w.begin("killed")
	w.refuses(ErrNoAnswer, "job", Wish{Wait: time.Second})
}

func TestALeaseOutlivesALinkThatIsCutForAMoment(t *testing.T) {
	w := newWorld(t)
	held := w.acquire("job", Wish{TTL: 3 * time.Second})
	before := w.daemon.info("renewals")
	w.begin("cut off")
	eventually(t, "another connection", func() bool { return w.link.opened() >= 2 })
	w.end("cut off")
	eventually(t, "a renewal", func() bool { return w.daemon.info("renewals") > before })
	w.release(held)
	w.daemon.settles()
}

func TestASecondAttemptGetsTheLock(t *testing.T) {
	w := newWorld(t)
	w.locks.settings.Retries = 5
	w.begin("cut off")
	go func() {
		for w.link.opened() < 2 {
			time.Sleep(5 * time.Millisecond)
		}
		w.end("cut off")
	}()
	held := w.acquire("job", Wish{Wait: 500 * time.Millisecond})
	eventually(t, "one hold", func() bool { return w.daemon.info("holds") == 1 })
	if w.daemon.info("waiters") != 0 {
		t.Fatal("a waiter stayed behind")
	}
	w.release(held)
	w.daemon.settles()
}

func TestWithoutAPasswordItTellsWhatToGive(t *testing.T) {
	t.Setenv("JOSTLED_PASSWORD", "secret")
	d := startDaemon(t)
	options := &redis.Options{Addr: d.address}
	_, err := New(options, Settings{}).Acquire(background, "job", Wish{})
	var refused *Refused
	if !errors.As(err, &refused) || !strings.HasPrefix(refused.Message, "NOAUTH give user and password") {
		t.Fatal(err)
	}
	options.Password = "secret"
	if _, err = New(options, Settings{}).Acquire(background, "job", Wish{}); err != nil {
		t.Fatal(err)
	}
}

// printed counts what go-redis prints: it may be read, and printed on, by nobody.
type printed struct{ count atomic.Int32 }

func (p *printed) Printf(_ context.Context, format string, _ ...any) {
	if strings.Contains(format, "dial") {
		p.count.Add(1)
	}
}

func TestADaemonThatIsGoneIsReportedAndNotPrinted(t *testing.T) {
	var lines printed
	redis.SetLogger(&lines)
	d := startDaemon(t)
	locks := New(&redis.Options{Addr: d.address}, Settings{Timeout: 200 * time.Millisecond})
	held, err := locks.Acquire(background, "job", Wish{TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	d.signal(syscall.SIGKILL)
	<-held.Lost()
	if _, err := locks.Acquire(background, "job", Wish{}); !errors.Is(err, ErrNoAnswer) ||
		!errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatal(err)
	}
	if lines.count.Load() > 0 {
		t.Fatalf("%d lines were printed", lines.count.Load())
	}
}

func TestALeaseIsCountedFromBeforeItWasSent(t *testing.T) {
	sent := time.Now().Add(-5 * time.Second)
	late := newTerm(4*time.Second, 4*time.Second, time.Second, sent)
	if !late.isOver() || newTerm(time.Minute, time.Minute, time.Second, sent).isOver() || newTerm(0, 0, time.Second, sent).isOver() {
		t.Fatal("wrong end")
	}
	late.extend(time.Now())
	if !late.isOver() {
		t.Fatal("an answer that came too late brought it back")
	}
}

func (d *daemon) ttlMs(name string) int {
	found := regexp.MustCompile(`ttl-ms\r\n:(\d+)`).FindStringSubmatch(d.ask("HOLDER " + name))
	ms, _ := strconv.Atoi(found[1])
	return ms
}

func TestOnlyWhatIsHeldForLongIsRenewed(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	for _, timeout := range []time.Duration{20 * time.Second, 5 * time.Second} {
		locks := New(&redis.Options{Addr: d.address}, Settings{Timeout: timeout})
		held, err := locks.Acquire(context.Background(), "job", Wish{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if timeout == 5*time.Second {
			// Such a lease is short until the first renewal.
			eventually(t, "longer", func() bool { return d.ttlMs("job") > 30_000 })
		} else if ms := d.ttlMs("job"); ms < 30_000 {
			t.Fatalf("a lease of %d ms", ms)
		}
		if err := held.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
		if renewals := d.info("renewals"); timeout > 5*time.Second && renewals != 0 {
			t.Fatalf("%d renewals", renewals)
		}
	}
}

func init() {
	lookup = func(ctx context.Context, host string) ([]string, error) {
		if host == "locks.test" {
			return []string{"127.0.0.3", "127.0.0.2", "127.0.0.1"}, nil
		}
		return net.DefaultResolver.LookupHost(ctx, host)
	}
}

func TestEachAddressOfTheNameIsTriedAndASilentOneLast(t *testing.T) {
	t.Parallel()
	d := startDaemon(t)
	_, port, _ := net.SplitHostPort(d.address)
	silent, err := net.Listen("tcp", "127.0.0.2:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	locks := New(&redis.Options{Addr: "locks.test:" + port}, Settings{Timeout: time.Second})
	if _, err := locks.Acquire(context.Background(), "job", Wish{}); !errors.Is(err, ErrNoAnswer) {
		t.Fatal(err)
	}
	locks.settings.Timeout = 20 * time.Second
	if _, err := locks.Acquire(context.Background(), "job", Wish{}); err != nil {
		t.Fatal(err)
	}
}
