package lock

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// eventually waits for something that must come true soon.
func eventually(t *testing.T, what string, test func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !test(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// daemon is a jostled of the test's own: $JOSTLED, or what `cargo build` leaves.
type daemon struct {
	t       *testing.T
	process *os.Process
	address string
}

func startDaemon(t *testing.T) *daemon {
	program := os.Getenv("JOSTLED")
	if program == "" {
		program = "../../../target/debug/jostled"
	}
	command := exec.Command(program, "--data", "none", "--listen", "127.0.0.1:0")
	stderr, err := command.StderrPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, process: command.Process}
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	lines := bufio.NewScanner(stderr)
	for lines.Scan() && !strings.Contains(lines.Text(), "ready") {
		if _, address, found := strings.Cut(lines.Text(), "listening on "); found {
			d.address = address
		}
	}
	go func() { _, _ = io.Copy(io.Discard, stderr) }()
	if d.address == "" {
		t.Fatalf("%s did not start", program)
	}
	return d
}

func (d *daemon) signal(signal syscall.Signal) {
	if err := d.process.Signal(signal); err != nil {
		d.t.Fatal(err)
	}
}

// ask gives the reply to one command, as the bytes of RESP2.
func (d *daemon) ask(words string) string {
	d.t.Helper()
	conn, err := net.Dial("tcp", d.address)
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "%s\r\nQUIT\r\n", words)
	reply, _ := io.ReadAll(conn)
	return string(reply)
}

// info is a figure of INFO.
func (d *daemon) info(name string) int {
	d.t.Helper()
	found := regexp.MustCompile(`(?m)^` + name + `:(\d+)`).FindStringSubmatch(d.ask("INFO"))
	if found == nil {
		d.t.Fatalf("INFO has no %s", name)
	}
	value, _ := strconv.Atoi(found[1])
	return value
}

// settles waits until nobody holds a lock or waits for one.
func (d *daemon) settles() {
	d.t.Helper()
	eventually(d.t, "no holds", func() bool { return d.info("holds") == 0 })
	eventually(d.t, "no waiters", func() bool { return d.info("waiters") == 0 })
}

// link is a way to the daemon that stops forwarding when it is cut, as a dead network does.
type link struct {
	listener net.Listener
	daemon   *daemon
	guard    sync.Mutex
	whole    *sync.Cond
	isCut    bool
	swallow  string
	count    int
}

func startLink(t *testing.T, d *daemon) *link {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, daemon: d}
	l.whole = sync.NewCond(&l.guard)
	t.Cleanup(func() { _ = listener.Close(); l.set(false) })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			l.guard.Lock()
			l.count++
			l.guard.Unlock()
			go l.carry(near)
		}
	}()
	return l
}

func (l *link) address() string { return l.listener.Addr().String() }

func (l *link) opened() int {
	l.guard.Lock()
	defer l.guard.Unlock()
	return l.count
}

func (l *link) set(cut bool) {
	l.guard.Lock()
	l.isCut = cut
	l.guard.Unlock()
	l.whole.Broadcast()
}

// loseAnswerTo forwards, once, a request that has these bytes, and cuts its
// connection in place of the answer, when there is one.
func (l *link) loseAnswerTo(request string) {
	l.guard.Lock()
	defer l.guard.Unlock()
	l.swallow = request
}

// swallows says whether this is the request whose answer is to be lost.
func (l *link) swallows(bytes []byte) bool {
	l.guard.Lock()
	defer l.guard.Unlock()
	if l.swallow == "" || !strings.Contains(string(bytes), l.swallow) {
		return false
	}
	l.swallow = ""
	return true
}

func (l *link) awaitWhole() {
	l.guard.Lock()
	for l.isCut {
		l.whole.Wait()
	}
	l.guard.Unlock()
}

func (l *link) carry(near net.Conn) {
	defer near.Close()
	l.awaitWhole()
	far, err := net.Dial("tcp", l.daemon.address)
	if err != nil {
		return
	}
	defer far.Close()
	ended := make(chan struct{}, 2)
	var loses atomic.Bool
	pump := func(to, from net.Conn) {
		buffer := make([]byte, 65536)
		for {
			n, err := from.Read(buffer)
			l.awaitWhole()
			if loses.Load() {
				err = io.ErrUnexpectedEOF // This is the answer.
			} else if l.swallows(buffer[:n]) {
				loses.Store(true)
			}
			if err == nil {
				_, err = to.Write(buffer[:n])
			}
			if err != nil {
				ended <- struct{}{}
				return
			}
		}
	}
	go pump(near, far)
	go pump(far, near)
	<-ended
}
