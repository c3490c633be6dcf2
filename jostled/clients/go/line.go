package lock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// line is a connection of one lock's own; what is not answered in time closes it.
type line struct {
	client    *redis.Client
	addresses *addresses

	guard   sync.Mutex
	conn    net.Conn
	address string // Of conn.
	dialed  bool
}

// addresses of the daemon's name: the one that was silent last is tried last.
type addresses struct {
	guard  sync.Mutex
	silent string
}

// blame notes that no answer came from there; "" if there was no connection.
func (a *addresses) blame(address string) {
	a.guard.Lock()
	defer a.guard.Unlock()
	if address != "" {
		a.silent = address
	}
}

// perAddress is how long one of several addresses may take to connect.
const perAddress = time.Second

// lookup finds the addresses of a name; tests have their own.
var lookup = net.DefaultResolver.LookupHost

// dial tries the addresses of a name one by one.
func (a *addresses) dial(
	ctx context.Context, o redis.Options, timeout time.Duration, network, address string,
) (conn net.Conn, to string, err error) {
	found, port := []string{""}, ""
	if network == "tcp" {
		var host string
		if host, port, err = net.SplitHostPort(address); err == nil {
			found, err = lookup(ctx, host)
		}
		if err != nil {
			return nil, "", err
		}
		if o.TLSConfig != nil && o.TLSConfig.ServerName == "" {
			o.TLSConfig = o.TLSConfig.Clone()
			o.TLSConfig.ServerName = host
		}
	}
	a.guard.Lock()
	silent := a.silent
	a.guard.Unlock()
	if at := slices.Index(found, silent); at >= 0 {
		found = append(slices.Delete(found, at, at+1), silent)
	}
	o.DialTimeout = timeout
	if len(found) > 1 {
		o.DialTimeout = min(timeout, perAddress)
	}
	for _, to = range found {
		if network == "tcp" {
			address = net.JoinHostPort(to, port)
		}
		if conn, err = redis.NewDialer(&o)(ctx, network, address); err == nil {
			keepAlive(conn)
			return conn, to, nil
		}
		var failed net.Error
		if errors.As(err, &failed) && failed.Timeout() {
			a.blame(to)
		}
	}
	return nil, "", err
}

// keepAlive lets the system end a connection whose host is gone for 4 s.
func keepAlive(conn net.Conn) {
	if tcp, ok := plain(conn).(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{
			Enable: true, Idle: time.Second, Interval: time.Second, Count: 3,
		})
	}
}

// plain is a connection below TLS.
func plain(conn net.Conn) net.Conn {
	if secured, ok := conn.(interface{ NetConn() net.Conn }); ok {
		return secured.NetConn()
	}
	return conn
}

var errGone = errors.New("the connection is gone")

// newLine makes a client of go-redis that opens one connection, once, and sends
// nothing twice: go-redis would replace a connection that was closed, and lock
// and waiter with it, without a word, and send a LOCK again that was not answered.
func newLine(options *redis.Options, timeout time.Duration, addresses *addresses) *line {
	l := &line{addresses: addresses}
	o := *options
	o.DialTimeout = timeout
	dial := func(ctx context.Context, network, address string) (net.Conn, string, error) {
		return addresses.dial(ctx, o, timeout, network, address)
	}
	if own := options.Dialer; own != nil {
		dial = func(ctx context.Context, network, address string) (net.Conn, string, error) {
			conn, err := own(ctx, network, address)
			return conn, "", err
		}
	}
	o.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		if !l.mayDial() {
			return failing(errGone), nil
		}
		conn, to, err := dial(ctx, network, address)
		if err == nil {
			err = l.took(conn, to)
		}
		if err != nil {
			return failing(err), nil
		}
		return conn, nil
	}
	o.DialerRetries = 1
	o.MaxRetries = -1
	o.PoolSize, o.MinIdleConns = 1, 0
	o.ConnMaxIdleTime, o.ConnMaxLifetime = -1, 0
	o.ReadTimeout, o.WriteTimeout = -1, -1 // The context has the limits.
	o.ContextTimeoutEnabled = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	l.client = redis.NewClient(&o)
	return l
}

// unconnected stands for a connection that could not be opened: the first request gets the
// error. A dialer that returns it would have go-redis print it, and dial on in the background.
type unconnected struct {
	net.Conn
	why error
}

func failing(why error) net.Conn {
	end, _ := net.Pipe()
	return unconnected{end, why}
}

func (u unconnected) Read([]byte) (int, error)  { return 0, u.why }
func (u unconnected) Write([]byte) (int, error) { return 0, u.why }

func (l *line) mayDial() bool {
	l.guard.Lock()
	defer l.guard.Unlock()
	first := !l.dialed
	l.dialed = true
	return first
}

func (l *line) took(conn net.Conn, address string) error {
	l.guard.Lock()
	defer l.guard.Unlock()
	if l.dialed && l.conn == nil {
		l.conn, l.address = conn, address
		return nil
	}
	_ = conn.Close() // It was given up while it was dialled.
	return errGone
}

// ask gives the reply, redis.Nil, *Refused, ErrNoAnswer, or the error of ctx.
// A limit of 0 is none.
func (l *line) ask(ctx context.Context, limit time.Duration, words ...any) (any, error) {
	var reply any
	err := l.exchange(ctx, limit, words[0], func(within context.Context) (err error) {
		reply, err = l.client.Do(within, words...).Result()
		return err
	})
	return reply, err
}

// askAll sends commands at once, and awaits the replies to all of them; *Refused
// if one of them is.
func (l *line) askAll(ctx context.Context, limit time.Duration, commands [][]any) error {
	return l.exchange(ctx, limit, commands[0][0], func(within context.Context) error {
		pipeline := l.client.Pipeline()
		for _, words := range commands {
			pipeline.Do(within, words...)
		}
		replies, err := pipeline.Exec(within)
		for _, reply := range replies {
			var answer redis.Error
			// What was not answered says more than what was refused before it.
			if reply.Err() != nil && !errors.As(reply.Err(), &answer) {
				return reply.Err()
			}
		}
		return err
	})
}

func (l *line) exchange(
	ctx context.Context, limit time.Duration, command any, call func(context.Context) error,
) error {
	within, cancel := ctx, context.CancelFunc(func() {})
	if limit > 0 {
		within, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	// go-redis does not look at a context while it reads.
	stop := context.AfterFunc(within, l.close)
	err := call(within)
	if !stop() && err == nil {
		// The limit came together with the reply, and closes the connection. So the
		// daemon ends what it has granted to it.
		err = within.Err()
	}
	var answer redis.Error
	switch {
	case err == nil || errors.Is(err, redis.Nil):
		return err
	case errors.As(err, &answer):
		return &Refused{Message: inOurTerms(answer.Error())}
	}
	l.close()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	l.guard.Lock()
	l.addresses.blame(l.address)
	l.guard.Unlock()
	return fmt.Errorf("%w to %v: %w", ErrNoAnswer, command, err)
}

// inOurTerms names this package's settings where a refusal names commands of the protocol.
func inOurTerms(refusal string) string {
	if strings.HasPrefix(refusal, "NOAUTH") {
		return "NOAUTH give user and password: Username and Password of redis.Options"
	}
	return refusal
}

// ended says whether the other side has closed the connection, while nothing is asked.
func (l *line) ended() bool {
	l.guard.Lock()
	conn := l.conn
	l.guard.Unlock()
	system, ok := plain(conn).(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := system.SyscallConn()
	return err == nil && hasEnded(raw)
}

// closed stands for the connection of a line that was given up.
type closed struct{ net.Conn }

// close may be called from any goroutine, and more than once.
func (l *line) close() {
	l.guard.Lock()
	conn := l.conn
	l.conn, l.dialed = closed{}, true
	l.guard.Unlock()
	if _, gone := conn.(closed); !gone && conn != nil {
		_ = conn.Close()
	}
	_ = l.client.Close()
}
