package jostle.lock;

import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BiFunction;
import java.util.function.Consumer;
import java.util.function.Function;
import jostle.lock.Kept.Grant;
import jostle.lock.Kept.Parts;
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
    /** The address of the daemon's name that was silent last. */
    private final AtomicReference<InetAddress> silent = new AtomicReference<>();

    /**
     * Where the daemon is.
     *
     * @param config user, password and TLS, as Jedis has them
     * @param timeout how long an answer may take, beyond the wait where there is one
     * @param retries how often a request is sent again when no answer came: on a new connection, after the
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
        Held held = take(wish.words(name), name, wish.maxWait(), wish.ttl(), (reply, keep) -> {
            String token = reply.toString();
            List<String> renewal = renewal(name, token, wish.ttl());
            String title = name + " (token " + token + ")";
            Grant grant = new Grant(title, List.of(renewal), List.of(List.of("UNLOCK", name, token)));
            return new Held(keep.apply(grant), name, (Long) reply);
        });
        held.start(Kept.calling(wish.onLost(), held));
        return held;
    }

    /**
     * Waits for several exclusive locks, all or none; close them, as {@code try} does. Two programs
     * that both use it do not block each other, in whatever order they name the locks.
     *
     * @throws LockException as that of {@link #acquire}
     */
    public HeldAll acquireAll(List<String> names, WishAll wish) {
        List<String> words = new ArrayList<>(List.of("LOCKALL", Integer.toString(names.size())));
        words.addAll(names);
        String all = String.join(", ", names);
        HeldAll held = take(words, all, wish.maxWait(), wish.ttl(), (reply, keep) -> {
            Map<String, Long> tokens = new LinkedHashMap<>();
            List<List<String>> renewal = new ArrayList<>();
            List<List<String>> ending = new ArrayList<>();
            if (wish.ttl() == null) {
                renewal.add(List.of("PING"));
            }
            for (Object token : (List<?>) reply) {
                String name = names.get(tokens.size());
                tokens.put(name, (Long) token);
                if (wish.ttl() != null) {
                    renewal.add(renewal(name, token.toString(), wish.ttl()));
                }
                ending.add(List.of("UNLOCK", name, token.toString()));
            }
            Grant grant = new Grant(all + " (tokens " + tokens.values() + ")", renewal, ending);
            return new HeldAll(keep.apply(grant), Collections.unmodifiableMap(tokens));
        });
        held.start(Kept.calling(wish.onLost(), held));
        return held;
    }

    /**
     * Opens a session, which owns many locks and is renewed for all of them; close it, as {@code try}
     * does. It is renewed at a third of its ttl, and lost as a lease is.
     *
     * @param onLost called once, by a thread of its own; null for none
     * @throws LockException NoAnswer or Refused
     */
    public Session session(Duration ttl, Consumer<Session> onLost) {
        Wish.checkTimes(null, Objects.requireNonNull(ttl));
        String millis = Long.toString(ttl.toMillis());
        return session(ttl, onLost, line -> {
            List<String> words = List.of("SESSION", "OPEN", "TTL", millis, "AS", Session.opener());
            byte[] id = (byte[]) line.ask(timeout, words);
            return new String(id, StandardCharsets.UTF_8);
        });
    }

    /**
     * Takes up a session that was opened before, by this program or by one that has ended, with the
     * same ttl.
     *
     * @throws LockException NoAnswer, or LockLost if it is over
     */
    public Session takeUp(String id, Duration ttl, Consumer<Session> onLost) {
        Wish.checkTimes(null, Objects.requireNonNull(ttl));
        return session(ttl, onLost, line -> {
            try {
                line.ask(timeout, List.of("SESSION", "RENEW", id));
                return id;
            } catch (Refused error) {
                throw new LockLost(Session.title(id) + ": " + error.getMessage(), error);
            }
        });
    }

    private Session session(Duration ttl, Consumer<Session> onLost, Function<Line, String> open) {
        Session session = tryOften(line -> {
            long sent = System.nanoTime();
            String id = open.apply(line);
            List<String> renewal = List.of("SESSION", "RENEW", id);
            List<String> ending = List.of("SESSION", "CLOSE", id);
            Grant grant = new Grant(Session.title(id), List.of(renewal), List.of(ending));
            return new Session(new Parts(this, grant, ttl, new Term(ttl, ttl, timeout, sent), line), this, id);
        });
        session.start(Kept.calling(onLost, session));
        return session;
    }

    /** The token of a lock that belongs to a session. */
    long lockInSession(String name, Wish wish, String session, Known known) {
        long begun = System.nanoTime();
        List<String> words = wish.words(name);
        words.addAll(List.of("SESSION", session));
        return tryOften(line -> {
            try {
                return (Long) await(line, words, name, wish.maxWait(), begun);
            } catch (NotGranted | Refused error) {
                throw error;
            } catch (RuntimeException | Error error) {
                known.doubt(name);
                throw error;
            } finally {
                line.close(); // The session owns the lock.
            }
        });
    }

    Line line() {
        return new Line(address, config, timeout, silent);
    }

    Duration timeout() {
        return timeout;
    }

    private static List<String> renewal(String name, String token, Duration ttl) {
        return ttl == null
                ? List.of("PING")
                : List.of("RENEW", name, token, "TTL", Long.toString(ttl.toMillis()));
    }

    /** What an attempt makes of a connection of its own, which is closed if it fails. */
    private <T> T tryOften(Function<Line, T> attempt) {
        for (int left = retries; ; left--) {
            Line line = line();
            try {
                return attempt.apply(line);
            } catch (RuntimeException error) {
                line.close();
                if (left == 0 || !(error instanceof NoAnswer)) {
                    throw error;
                }
            }
            pause();
        }
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

    /** Sends a request on a connection of its own, which stays open if it is granted. */
    private <T> T take(
            List<String> words,
            String name,
            Duration maxWait,
            Duration ttl,
            BiFunction<Object, Function<Grant, Parts>, T> granted) {
        long begun = System.nanoTime();
        return tryOften(line -> {
            long sent = System.nanoTime();
            Duration first = firstOf(ttl);
            List<String> timed = new ArrayList<>(words);
            if (first != null) {
                timed.addAll(List.of("TTL", Long.toString(first.toMillis())));
            }
            Object reply = await(line, timed, name, maxWait, begun);
            return granted.apply(reply, grant -> {
                Term term = new Term(ttl, first, timeout, sent);
                if (term.isLate()) {
                    term = begin(grant, ttl, line);
                }
                return new Parts(this, grant, ttl, term, line);
            });
        });
    }

    /**
     * How long a lease is taken for until its grant is known. A grant whose answer does not arrive
     * leaves a lease that nobody knows of: taken for four timeouts at most, it does not keep others
     * out for long. By default it survives a change of the member that serves.
     */
    private Duration firstOf(Duration ttl) {
        if (ttl == null) {
            return null;
        }
        Duration known = timeout.multipliedBy(4);
        return Term.least(ttl, known.toMillis() < 10 ? Duration.ofMillis(10) : known);
    }

    /** Sends a request with its wait; the reply, once it is granted. */
    private Object await(Line line, List<String> words, String name, Duration maxWait, long begun) {
        List<String> timed = new ArrayList<>(words);
        Duration limit = null;
        if (maxWait != null) {
            Duration left = maxWait.minusNanos(System.nanoTime() - begun);
            left = left.isNegative() ? Duration.ZERO : left;
            limit = left.plus(timeout);
            timed.addAll(List.of("WAIT", Long.toString(left.toMillis())));
        }
        Object reply = line.ask(limit, timed);
        if (reply == null) {
            throw new NotGranted(name + ": taken by others for " + maxWait);
        }
        return reply;
    }

    /** Gives it its whole length, from now on: it began at an unknown time. */
    private Term begin(Grant grant, Duration ttl, Line line) {
        long sent = System.nanoTime();
        try {
            line.askAll(timeout, grant.renewal());
        } catch (Refused error) {
            throw new LockLost(grant.title() + ": the lease ended before it was known", error);
        } catch (NoAnswer error) {
            if (ttl == null) {
                throw error;
            }
            // Spares the next one the rest of a lease that nobody will use.
            try (Line other = line()) {
                other.askAll(timeout, grant.ending());
            } catch (NoAnswer | Refused ignored) {
                // It ends by itself, after four timeouts at most.
            }
            throw error;
        }
        return new Term(ttl, ttl, timeout, sent);
    }
}
