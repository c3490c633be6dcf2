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
	"time"
)

// ErrRefused says that another owner has the lock, or that the time was up.
var ErrRefused = errors.New("refused")

// Lock is one of the locks of a worker.
type Lock interface {
	// Acquire waits until ctx ends; wait is false where it must not wait at all. It
	// returns ErrRefused or the context's error where it was not granted.
	Acquire(ctx context.Context, shared, wait bool) error
	Release() error
}

// Serve answers requests until they end. join makes the lock of a key.
func Serve(capabilities string, join func(worker, key int) (Lock, error)) {
	var locks []Lock
	input := bufio.NewReader(os.Stdin)
	for {
		line, err := input.ReadString('\n')
		if err != nil {
			return
		}
		answer := answer(line, capabilities, &locks, join)
		if _, err := os.Stdout.WriteString(answer + "\n"); err != nil {
			return
		}
	}
}

func answer(line, capabilities string, locks *[]Lock, join func(int, int) (Lock, error)) string {
	var worker, keys, key, ms int
	var mode string
	switch line[0] {
	case 'H':
		fmt.Sscanf(line, "HELLO jostle/1 %d %d", &worker, &keys)
		for key := range keys {
			lock, err := join(worker, key)
			if err != nil {
				return failed(err)
			}
			*locks = append(*locks, lock)
		}
		return "READY " + capabilities
	case 'A':
		fmt.Sscanf(line, "A %d %s %d", &key, &mode, &ms)
		ctx, cancel := context.Background(), func() {}
		if ms > 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
		}
		defer cancel()
		err := (*locks)[key].Acquire(ctx, mode == "s", ms != 0)
		if errors.Is(err, ErrRefused) || ctx.Err() != nil && err != nil {
			return "R"
		}
		if err != nil {
			return failed(err)
		}
		return "G"
	default:
		fmt.Sscanf(line, "U %d", &key)
		if err := (*locks)[key].Release(); err != nil {
			return failed(err)
		}
		return "K"
	}
}

func failed(err error) string {
	return "E " + strings.ReplaceAll(err.Error(), "\n", " ")
}
