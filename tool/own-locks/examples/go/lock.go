// A mutex made of a channel with one place, which can try and give up in time, as
// sync.Mutex cannot. It is for threads: `jostle contend lib:PATH.so --as threads`.
// A channel lives in one process, and with processes as workers each would have a
// lock for itself; jostle finds that out (their owners overlap), as it would of any
// lock that does not exclude.
//
//	cd tool/own-locks/examples/go && go build -buildmode=c-shared -o /tmp/chanlock.so
//
// The measured call crosses from C into Go, which costs more than the lock does.
package main

/*
#include <errno.h>
#include <stdint.h>
#include <time.h>

static int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}
*/
import "C"

import (
	"sync"
	"time"
	"unsafe"
)

// No signal reaches a goroutine that waits: so often it looks up, and jostle calls again.
const lookUp = 50 * time.Millisecond

// The locks of this process, made when they are first asked for.
var (
	guard sync.RWMutex
	locks = map[C.uint]chan struct{}{}
)

func lock(key C.uint) chan struct{} {
	guard.RLock()
	found := locks[key]
	guard.RUnlock()
	if found != nil {
		return found
	}
	guard.Lock()
	defer guard.Unlock()
	if locks[key] == nil {
		locks[key] = make(chan struct{}, 1)
	}
	return locks[key]
}

//export jostle_abi
func jostle_abi() C.int { return 1 }

//export jostle_prepare
func jostle_prepare(shared unsafe.Pointer, args *C.char, workers, keys C.uint) C.int { return 0 }

//export jostle_join
func jostle_join(shared unsafe.Pointer, worker C.uint) unsafe.Pointer { return shared }

//export jostle_acquire
func jostle_acquire(self unsafe.Pointer, key C.uint, isShared C.int, deadline C.int64_t,
	token *C.uint64_t) C.int {
	if isShared != 0 {
		return -C.ENOTSUP
	}
	place := lock(key)
	select {
	case place <- struct{}{}:
		return 1
	default:
	}
	wait, late := lookUp, C.int(-C.EINTR)
	if deadline >= 0 {
		wait, late = time.Duration(deadline-C.now_ns()), 0
	}
	if deadline == 0 || wait <= 0 {
		return 0
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case place <- struct{}{}:
		return 1
	case <-timer.C:
		return late
	}
}

//export jostle_release
func jostle_release(self unsafe.Pointer, key C.uint, isShared C.int) C.int {
	<-lock(key)
	return 0
}

//export jostle_leave
func jostle_leave(self unsafe.Pointer) {}

func main() {}
