//go:build unix

package lock

import "syscall"

// hasEnded looks at a socket without taking anything from it.
func hasEnded(raw syscall.RawConn) bool {
	ended := false
	_ = raw.Control(func(fd uintptr) {
		var one [1]byte
		count, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		nothing := err == syscall.EAGAIN || err == syscall.EINTR
		ended = (err == nil && count == 0) || (err != nil && !nothing)
	})
	return ended
}
