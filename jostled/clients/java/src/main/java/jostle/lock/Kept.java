package jostle.lock;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import jostle.lock.LockException.LockLost;
import jostle.lock.LockException.NoAnswer;
import jostle.lock.LockException.Refused;

/**
 * Something that a connection owns, or that is renewed until it is closed: a lock, several, or a
 * session.
 */
public abstract sealed class Kept implements AutoCloseable permits Held, HeldAll, Session {
    /** How often the keeper looks whether its connection has ended. */
    private static final long LOOK_NANOS = 100_000_000;

    private static final String UNRENEWED = "it ended, and no renewal was answered";

    /**
     * What the daemon has granted: its name in errors, and the commands that renew it (or ask whether its
     * connection lives) and end it.
     */
    record Grant(String title, List<List<String>> renewal, List<List<String>> ending) {}

    /** A grant, and what keeps it; {@code ttl} is null for what its connection owns. */
    record Parts(Locks locks, Grant grant, Duration ttl, Term term, Line line) {}

    private final Parts parts;
    private final Term term;
    private final CountDownLatch over = new CountDownLatch(1);
    private final Thread keeper = new Thread(this::keep, "jostle-lock keeper");
    private volatile Runnable onLost;
    private volatile Line line;
    private volatile String reason;
    private volatile boolean released;

    Kept(Parts parts) {
        this.parts = parts;
        this.term = parts.term;
        this.line = parts.line;
    }

    /** Begins to keep it; {@code onLost} may be null. */
    void start(Runnable onLost) {
        this.onLost = onLost;
        keeper.setDaemon(true);
        keeper.start();
        if (parts.ttl != null) {
            // The keeper may be waiting for an answer when the lease ends.
            Thread watcher = new Thread(this::watch, "jostle-lock watcher");
            watcher.setDaemon(true);
            watcher.start();
        }
    }

    /** A callback with its argument; null if there is none. */
    static <T> Runnable calling(Consumer<T> call, T with) {
        return call == null ? null : () -> call.accept(with);
    }

    /** Whether somebody else may hold the lock by now. */
    public boolean isLost() {
        return reason != null || (!released && term.isOver());
    }

    /**
     * Call it before what must not happen twice.
     *
     * @throws LockLost if the lock is lost
     */
    public void check() {
        if (isLost()) {
            throw lost(whyLost(), null);
        }
    }

    /** Whether it is being closed, or lost. */
    boolean isOver() {
        return over.getCount() == 0;
    }

    /**
     * Gives the lock back. If it returns, the daemon has confirmed that the lock was held from its
     * grant to this moment. A second call does nothing.
     *
     * @throws LockLost unless it was held until now
     */
    @Override
    public void close() {
        if (released) {
            return;
        }
        over.countDown();
        join();
        try {
            check();
            unlock();
            released = true;
        } catch (NoAnswer | Refused error) {
            end("its release was not confirmed: " + error.getMessage());
            throw lost(whyLost(), error);
        } finally {
            line.close();
        }
    }

    private void join() {
        boolean interrupted = false;
        while (keeper.isAlive() && Thread.currentThread() != keeper) {
            try {
                keeper.join(); // It waits for one answer at most.
            } catch (InterruptedException interrupt) {
                interrupted = true;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private void unlock() {
        try {
            line.askAll(term.answer, parts.grant.ending);
        } catch (NoAnswer error) {
            if (parts.ttl == null) {
                throw error; // The connection is gone, and the lock with it.
            }
            line = parts.locks.line();
            line.askAll(term.answer, parts.grant.ending);
        }
    }

    /** Renews a lease; without one, asks whether the connection lives. */
    private void keep() {
        long pause = term.soon.toNanos();
        while (!isOverBeforeRenewal(pause)) {
            pause = term.every.toNanos();
            try {
                confirm();
            } catch (Refused error) {
                lose("the daemon says: " + error.getMessage());
            } catch (NoAnswer error) {
                if (parts.ttl == null) {
                    lose(error.getMessage());
                } else {
                    line = parts.locks.line();
                    pause = term.again.toNanos();
                }
            }
        }
        if (reason != null) {
            line.close();
        }
    }

    /** Waits; for a shorter time if the connection ends, which a lease then replaces. */
    private boolean isOverBeforeRenewal(long nanos) {
        long end = System.nanoTime() + nanos;
        for (long left = nanos; left > 0; left = end - System.nanoTime()) {
            if (isOverWithin(Math.min(left, LOOK_NANOS))) {
                return true;
            }
            if (line.hasEnded()) {
                if (parts.ttl == null) {
                    lose("the connection has ended");
                }
                line.close();
                line = parts.locks.line();
                break;
            }
        }
        return isOver();
    }

    private void confirm() {
        long sent = System.nanoTime();
        line.askAll(Term.least(term.answer, Duration.ofNanos(term.leftNanos())), parts.grant.renewal);
        term.extend(sent);
    }

    private void watch() {
        for (long left = term.leftNanos(); left > 0; left = term.leftNanos()) {
            if (isOverWithin(left)) {
                return;
            }
        }
        lose(UNRENEWED);
    }

    private boolean isOverWithin(long nanos) {
        try {
            return over.await(nanos, TimeUnit.NANOSECONDS);
        } catch (InterruptedException interrupt) {
            return true; // Nobody interrupts these threads.
        }
    }

    /** Marks it as lost, which is final; false if it was over before. */
    private synchronized boolean end(String why) {
        if (reason != null || released) {
            return false;
        }
        reason = why;
        return true;
    }

    /** Marks it as lost, and tells once. */
    void lose(String why) {
        if (isOver() || !end(why)) {
            return;
        }
        over.countDown();
        if (onLost != null) {
            onLost.run();
        }
    }

    private String whyLost() {
        return reason == null ? UNRENEWED : reason;
    }

    LockLost lost(String why, Throwable cause) {
        return new LockLost(parts.grant.title + ": " + why, cause);
    }
}
