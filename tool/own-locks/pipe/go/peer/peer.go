// Package peer is the loop of a lock that `jostle ... pipe:COMMAND` starts for each
// worker.
package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// ErrRefused says that another owner has the lock, or that the time was up.
var ErrRefused = errors.New("refused")

// ErrLost says that the lock was no longer ours.
var ErrLost = errors.New("the lock was no longer ours")

// Lock is one of the locks of a worker.
type Lock interface {
	// Acquire waits until ctx ends; wait is false where it must not wait at all. It
	// returns ErrRefused or the context's error where it was not granted.
	Acquire(ctx context.Context, shared, wait bool) error
	Release() error
}

// Renewer is a lock with a lease.
type Renewer interface {
	// Renew prolongs the lease to so much from now on.
	Renew(lease time.Duration) error
}

type server struct {
	sync.Mutex
	locks []Lock
	// What ends the wait of a request, by its number.
	waiting map[string]context.CancelFunc
}

// Serve answers requests until they end. join makes the lock of a key. capabilities also has the
// promise ("timeout lease=2000"), "renew" if its locks are Renewers, and "give-up" if Acquire
// returns soon after its ctx has ended, in any case.
func Serve(capabilities string, join func(worker, key int) (Lock, error)) {
	s := server{waiting: map[string]context.CancelFunc{}}
	givesUp := strings.Contains(capabilities, "give-up")
	input := bufio.NewReader(os.Stdin)
	for {
		line, err := input.ReadString('\n')
		if err != nil {
			return
		}
		if line[0] == 'H' {
			s.say("", s.hello(line, capabilities, join))
			continue
		}
		number := ""
		if line[0] <= '9' {
			number, line, _ = strings.Cut(line, " ")
		}
		ctx, cancel := context.WithCancel(context.Background())
		s.Lock()
		s.waiting[number] = cancel
		s.Unlock()
		if line[0] == 'A' && givesUp {
			go func() { s.say(number, s.answer(ctx, number, line)) }()
		} else {
			s.say(number, s.answer(ctx, number, line))
		}
	}
}

func (s *server) say(number, answer string) {
	if number != "" {
		answer = number + " " + answer
	}
	s.Lock()
	defer s.Unlock()
	os.Stdout.WriteString(answer + "\n")
}

func (s *server) end(number string) {
	s.Lock()
	defer s.Unlock()
	if cancel := s.waiting[number]; cancel != nil {
		cancel()
		delete(s.waiting, number)
	}
}

func (s *server) hello(line, capabilities string, join func(int, int) (Lock, error)) string {
	var version string
	var worker, keys int
	fmt.Sscanf(line, "HELLO %s %d %d", &version, &worker, &keys)
	for key := range keys {
		lock, err := join(worker, key)
		if err != nil {
			return failed(err)
		}
		s.locks = append(s.locks, lock)
	}
	return "READY jostle/2 " + capabilities
}

func (s *server) answer(ctx context.Context, number, line string) string {
	defer s.end(number)
	var key, ms int
	var mode, request string
	var err error
	switch line[0] {
	case 'A':
		fmt.Sscanf(line, "A %d %s %d", &key, &mode, &ms)
		if ms > 0 {
			limited, cancel := context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
			defer cancel()
			ctx = limited
		}
		err = s.locks[key].Acquire(ctx, mode == "s", ms != 0)
		if err == nil {
			return "G"
		}
		if ctx.Err() != nil {
			err = ErrRefused
		}
	case 'W':
		fmt.Sscanf(line, "W %d %d", &key, &ms)
		err = s.locks[key].(Renewer).Renew(time.Duration(ms) * time.Millisecond)
	case 'X':
		fmt.Sscanf(line, "X %s", &request)
		s.end(request)
	default:
		fmt.Sscanf(line, "U %d", &key)
		err = s.locks[key].Release()
	}
	if errors.Is(err, ErrRefused) || errors.Is(err, ErrLost) && number != "" {
		return "R"
	}
	if err != nil {
		return failed(err)
	}
	return "K"
}

func failed(err error) string {
	return "E " + strings.ReplaceAll(err.Error(), "\n", " ")
}
