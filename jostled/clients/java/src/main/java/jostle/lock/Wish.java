package jostle.lock;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/**
 * A lock as it is asked for: {@code Wish.waiting(Duration.ofSeconds(5)).ttl(Duration.ofSeconds(10))}.
 *
 * @param maxWait how long to wait for the grant: zero to take it or leave it, null without limit
 * @param ttl makes the lock a lease, renewed at a third of it; with null it belongs to a connection
 *     that is opened for it
 * @param shared asks for a reader's lock
 * @param of asks for one of so many places; 1 is an exclusive lock
 * @param onLost called once, by a thread of its own, when the lock is lost before it is released: for
 *     a lease at its end at the latest, also when the daemon does not answer; without a lease at most
 *     4/3 of the timeout after the daemon's last sign, and 8.5 s after the
 *     request for it
 */
public record Wish(Duration maxWait, Duration ttl, boolean shared, int of, Consumer<Held> onLost) {
    /** Refuses what makes no sense. */
    public Wish {
        checkTimes(maxWait, ttl);
        if (of < 1 || (shared && of != 1)) {
            throw new IllegalArgumentException("shared locks have no places: give shared or of");
        }
    }

    static void checkTimes(Duration maxWait, Duration ttl) {
        if (maxWait != null && maxWait.isNegative()) {
            throw new IllegalArgumentException("wait is at least 0, or null to wait without limit");
        }
        if (ttl != null && ttl.toMillis() < 10) {
            throw new IllegalArgumentException("ttl is at least 10 ms, or null for no lease");
        }
    }

    /** What the daemon calls such a hold. */
    String mode() {
        return shared ? "shared" : of == 1 ? "exclusive" : "place";
    }

    /** LOCK without its times. */
    List<String> words(String name) {
        List<String> words = new ArrayList<>(List.of("LOCK", name));
        if (shared) {
            words.add("SHARED");
        }
        if (of != 1) {
            words.addAll(List.of("OF", Integer.toString(of)));
        }
        return words;
    }

    /** An exclusive lock that belongs to its connection. */
    public static Wish waiting(Duration wait) {
        return new Wish(wait, null, false, 1, null);
    }

    /** The same as a lease. */
    public Wish ttl(Duration ttl) {
        return new Wish(maxWait, ttl, shared, of, onLost);
    }

    /** The same for readers. */
    public Wish asShared() {
        return new Wish(maxWait, ttl, true, of, onLost);
    }

    /** The same for one of so many places. */
    public Wish of(int places) {
        return new Wish(maxWait, ttl, shared, places, onLost);
    }

    /** The same with a callback for its loss. */
    public Wish onLost(Consumer<Held> call) {
        return new Wish(maxWait, ttl, shared, of, call);
    }
}
