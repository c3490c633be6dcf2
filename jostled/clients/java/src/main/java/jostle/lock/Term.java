package jostle.lock;

import java.time.Duration;

/**
 * How long a lock is surely held, by this machine's monotonic clock (nanoseconds).
 *
 * <p>The end of a lease is counted from before the request was sent, so it comes here before it comes
 * at the daemon. Once over, it stays over: an answer that comes too late changes nothing. A lock
 * without a lease ends with its connection, of which an answer to a PING tells as a renewal does.
 */
final class Term {
    /**
     * A member of a group that takes over keeps what connections held for 10 s, in which they are to
     * find out. So without an answer such a lock counts as held for 0.85 of that.
     */
    private static final Duration OF_CONNECTION = Duration.ofMillis(8500);

    /** How often to renew or to ask for a sign. */
    final Duration every;
    /** How long to wait for it. */
    final Duration answer;
    /** When to do so for the first time. */
    final Duration soon;
    /** When to do so after an attempt that was not answered. */
    final Duration again;

    private final long ttlNanos;
    private final long firstNanos;
    private long end;
    private boolean over;

    /** {@code ttl} is null without a lease; {@code first} is what the first renewal makes longer. */
    Term(Duration ttl, Duration first, Duration timeout, long sent) {
        boolean lease = ttl != null;
        ttlNanos = (lease ? ttl : OF_CONNECTION).toMillis() * 1_000_000;
        firstNanos = lease ? Math.min(ttlNanos, first.toMillis() * 1_000_000) : ttlNanos;
        end = sent + firstNanos;
        every = (lease ? ttl : least(timeout, OF_CONNECTION)).dividedBy(3);
        // An attempt that is not answered leaves time for two more.
        answer = lease ? least(timeout, ttl.dividedBy(6)) : timeout;
        // Who holds a lock for less than a second pays no renewal.
        boolean longer = firstNanos < ttlNanos;
        soon = longer ? least(first.dividedBy(3), Duration.ofSeconds(1)) : every;
        again = least(every.dividedBy(4), answer);
    }

    static Duration least(Duration one, Duration other) {
        return one.compareTo(other) < 0 ? one : other;
    }

    /** Whether the grant was waited for, so that little may be left of it. */
    boolean isLate() {
        return leftNanos() < firstNanos / 3 * 2;
    }

    /** A request sent at this time was granted. */
    synchronized void extend(long sent) {
        if (!isOver()) {
            end = sent + ttlNanos;
        }
    }

    /** Until the end, if nothing is answered. */
    synchronized long leftNanos() {
        return end - System.nanoTime();
    }

    synchronized boolean isOver() {
        over = over || leftNanos() <= 0;
        return over;
    }
}
