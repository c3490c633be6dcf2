package lock

import "context"

// Held is a lock that was granted; call Release when done.
type Held struct {
	// Name of the lock.
	Name string
	// Token is the fencing token: larger than that of every earlier grant.
	Token int64
	*kept
}

// Release gives the lock back. If it returns nil, the daemon has confirmed that
// the lock was held from its grant to this moment; otherwise the error is an
// ErrLost. A second call does nothing.
func (h *Held) Release(ctx context.Context) error { return h.finish(ctx) }

// HeldAll is several locks that were granted in one step, and are released
// together. All are lost as soon as one is.
type HeldAll struct {
	// Names of the locks, as they were asked for.
	Names []string
	// Tokens has the fencing token of each name, larger than those of every earlier grant.
	Tokens map[string]int64
	*kept
}

// Release gives the locks back, as that of Held does.
func (h *HeldAll) Release(ctx context.Context) error { return h.finish(ctx) }
