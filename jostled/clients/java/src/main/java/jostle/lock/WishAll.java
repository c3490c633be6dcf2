package jostle.lock;

import java.time.Duration;
import java.util.function.Consumer;

/**
 * Several locks as they are asked for.
 *
 * @param maxWait as {@link Wish} has it
 * @param ttl as {@link Wish} has it
 * @param onLost called once, by a thread of its own, when one of the locks is lost
 */
public record WishAll(Duration maxWait, Duration ttl, Consumer<HeldAll> onLost) {
    /** Refuses what makes no sense. */
    public WishAll {
        Wish.checkTimes(maxWait, ttl);
    }

    /** Locks that belong to their connection. */
    public static WishAll waiting(Duration wait) {
        return new WishAll(wait, null, null);
    }

    /** The same as leases. */
    public WishAll ttl(Duration ttl) {
        return new WishAll(maxWait, ttl, onLost);
    }

    /** The same with a callback for their loss. */
    public WishAll onLost(Consumer<HeldAll> call) {
        return new WishAll(maxWait, ttl, call);
    }
}
