package jostle.lock;

import java.time.Duration;

/**
 * How long a lock is surely held, by this machine's monotonic clock (nanoseconds).
 *
 * <p>The end of a lease is counted from before the request was sent, so it comes here before it comes
 * at the daemon. Once over, it stays over: an answer that comes too late changes nothing. A lock
 * without a lease has no end of its own.
 */
final class Term {
    /** How often to renew or to ask for a sign. */
    final Duration every;
    /** How long to wait for it. */
    final Duration answer;

    private final boolean lease;
    private final long ttlNanos;
    private long end;
    private boolean over;

    Term(Duration ttl, Duration timeout, long sent) {
        lease = ttl != null;
        ttlNanos = lease ? ttl.toMillis() * 1_000_000 : 0;
        end = sent + ttlNanos;
        every = (lease ? ttl : timeout).dividedBy(3);
        // An attempt that is not answered leaves time for two more.
        answer = lease && timeout.compareTo(ttl.dividedBy(6)) > 0 ? ttl.dividedBy(6) : timeout;
    }

    /** A request sent at this time was granted. */
    synchronized void extend(long sent) {
        if (!isOver()) {
            end = sent + ttlNanos;
        }
    }

    /** Until the end of the lease; without one, for ever. */
    synchronized long leftNanos() {
        return lease ? end - System.nanoTime() : Long.MAX_VALUE;
    }

    synchronized boolean isOver() {
        over = over || leftNanos() <= 0;
        return over;
    }
}
