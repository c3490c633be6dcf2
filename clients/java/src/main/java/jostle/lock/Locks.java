package jostle.lock;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import jostle.lock.LockException.LockLost;
import jostle.lock.LockException.NoAnswer;
import jostle.lock.LockException.NotGranted;
import jostle.lock.LockException.Refused;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;

/** Takes locks at one daemon. May be used by many threads. */
public final class Locks {
    private final HostAndPort address;
    private final JedisClientConfig config;
    private final Duration timeout;
    private final int retries;

    /**
     * Where the daemon is.
     *
     * @param config user, password and TLS, as Jedis has them
     * @param timeout how long an answer may take, beyond the wait where there is one
     * @param retries how often LOCK is sent again when no answer came: on a new connection, after the
     *     old one was closed
     */
    public Locks(HostAndPort address, JedisClientConfig config, Duration timeout, int retries) {
        if (timeout.toMillis() < 1 || retries < 0) {
            throw new IllegalArgumentException("timeout is at least 1 ms, retries at least 0");
        }
        this.address = address;
        this.config = config;
        this.timeout = timeout;
        this.retries = retries;
    }

    /**
     * Waits for a lock; close it, as {@code try} does.
     *
     * @throws LockException NotGranted, NoAnswer, Refused, or LockLost if a lease ended before its
     *     grant was known
     */
    public Held acquire(String name, Wish wish) {
        long begun = System.nanoTime();
        for (int left = retries; ; left--) {
            Line line = line();
            try {
                return attempt(name, wish, line, begun);
            } catch (RuntimeException error) {
                line.close();
                if (left == 0 || !(error instanceof NoAnswer)) {
                    throw error;
                }
            }
            pause();
        }
    }

    Line line() {
        return new Line(address, config, timeout);
    }

    /** A daemon that starts again needs a moment. */
    private void pause() {
        try {
            Thread.sleep(timeout.toMillis() / 4);
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
            throw new NotGranted("interrupted between two attempts");
        }
    }

    /** One LOCK on a connection of its own, which stays open if it is granted. */
    private Held attempt(String name, Wish wish, Line line, long begun) {
        long sent = System.nanoTime();
        List<String> words = new ArrayList<>(List.of("LOCK", name));
        Duration first = wish.ttl();
        if (first != null) {
            // A grant whose answer does not arrive leaves a lease that nobody knows of. Taken for
            // the timeout alone, it does not keep others out for long.
            Duration known = timeout.compareTo(Duration.ofMillis(10)) < 0 ? Duration.ofMillis(10) : timeout;
            first = first.compareTo(known) < 0 ? first : known;
            words.addAll(List.of("TTL", Long.toString(first.toMillis())));
        }
        Duration limit = null;
        if (wish.maxWait() != null) {
            Duration left = wish.maxWait().minusNanos(sent - begun);
            left = left.isNegative() ? Duration.ZERO : left;
            limit = left.plus(timeout);
            words.addAll(List.of("WAIT", Long.toString(left.toMillis())));
        }
        if (wish.shared()) {
            words.add("SHARED");
        }
        if (wish.of() != 1) {
            words.addAll(List.of("OF", Integer.toString(wish.of())));
        }
        Object token = line.ask(limit, words.toArray(String[]::new));
        if (token == null) {
            throw new NotGranted(name + ": taken by others for " + wish.maxWait());
        }
        Term term = new Term(first, timeout, sent);
        if (first != null && (!first.equals(wish.ttl()) || term.leftNanos() < 2 * term.every.toNanos())) {
            term = begin(name, wish, (Long) token, line);
        }
        return new Held(this, name, (Long) token, wish, term, line);
    }

    /** Gives a lease its whole length, from now on: it began at an unknown time. */
    private Term begin(String name, Wish wish, long token, Line line) {
        long sent = System.nanoTime();
        try {
            line.ask(timeout, "RENEW", name, Long.toString(token), "TTL", Long.toString(wish.ttl().toMillis()));
        } catch (Refused error) {
            throw new LockLost(name + ": the lease ended before it was known", error);
        } catch (NoAnswer error) {
            // Spares the next one the rest of a lease that nobody will use.
            try (Line other = line()) {
                other.ask(timeout, "UNLOCK", name, Long.toString(token));
            } catch (LockException again) {
                // It ends by itself, after the timeout.
                error.addSuppressed(again);
            }
            throw error;
        }
        return new Term(wish.ttl(), timeout, sent);
    }
}
