package jostle.lock;

import java.util.concurrent.atomic.AtomicBoolean;
import jostle.lock.LockException.LockLost;
import jostle.lock.LockException.Refused;

/** A lock of a session; for {@code try (SessionHeld held = session.acquire(...))}. */
public final class SessionHeld implements AutoCloseable {
    private final Session session;
    private final String name;
    private final long token;
    private volatile LockLost reason;
    private volatile boolean released;
    private final AtomicBoolean claimed; // Whether the session knows it as this one's.

    SessionHeld(Session session, String name, long token, boolean claimed) {
        this.claimed = new AtomicBoolean(claimed);
        this.session = session;
        this.name = name;
        this.token = token;
    }

    /** The lock's name. */
    public String name() {
        return name;
    }

    /** The fencing token: larger than that of every earlier grant. */
    public long token() {
        return token;
    }

    /** Whether somebody else may hold the lock by now: it is lost with its session. */
    public boolean isLost() {
        return reason != null || (!released && (session.isLost() || session.isOver()));
    }

    /**
     * Call it before what must not happen twice.
     *
     * @throws LockLost if the lock is lost
     */
    public void check() {
        if (reason != null) {
            throw reason;
        }
        if (!released) {
            session.checkOpen();
        }
    }

    /**
     * Gives the lock back. A second call does nothing. After NoAnswer the session may still have it:
     * call it again.
     *
     * @throws LockException LockLost if it was not held until now, or NoAnswer
     */
    @Override
    public void close() {
        if (released) {
            return;
        }
        check();
        try {
            session.unlock(name, token);
        } catch (Refused error) {
            reason = new LockLost(name + " (token " + token + "): " + error.getMessage(), error);
            forget();
            throw reason;
        }
        released = true;
        forget();
    }

    private void forget() {
        if (claimed.getAndSet(false)) {
            session.forget(name);
        }
    }
}
