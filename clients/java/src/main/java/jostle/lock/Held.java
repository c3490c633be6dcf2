package jostle.lock;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import jostle.lock.LockException.LockLost;
import jostle.lock.LockException.NoAnswer;
import jostle.lock.LockException.Refused;

/** A lock that was granted; for {@code try (Held held = locks.acquire(...))}. */
public final class Held implements AutoCloseable {
    private static final String UNRENEWED = "the lease ended, and no renewal was answered";

    private final Locks locks;
    private final String name;
    private final long token;
    private final Wish wish;
    private final Term term;
    private final CountDownLatch over = new CountDownLatch(1);
    private final Thread keeper = new Thread(this::keep, "jostle-lock keeper");
    private volatile Line line;
    private volatile String reason;
    private volatile boolean released;

    Held(Locks locks, String name, long token, Wish wish, Term term, Line line) {
        this.locks = locks;
        this.name = name;
        this.token = token;
        this.wish = wish;
        this.term = term;
        this.line = line;
        keeper.setDaemon(true);
        keeper.start();
        if (wish.ttl() != null) {
            // The keeper may be waiting for an answer when the lease ends.
            Thread watcher = new Thread(this::watch, "jostle-lock watcher");
            watcher.setDaemon(true);
            watcher.start();
        }
    }

    /** The lock's name. */
    public String name() {
        return name;
    }

    /** The fencing token: larger than that of every earlier grant. */
    public long token() {
        return token;
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
            throw lost(null);
        }
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
            throw lost(error);
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
            line.ask(term.answer, "UNLOCK", name, Long.toString(token));
        } catch (NoAnswer error) {
            if (wish.ttl() == null) {
                throw error; // The connection is gone, and the lock with it.
            }
            line = locks.line();
            line.ask(term.answer, "UNLOCK", name, Long.toString(token));
        }
    }

    /** Renews a lease; without one, asks whether the connection lives. */
    private void keep() {
        long pause = term.every.toNanos();
        while (!isOverWithin(pause)) {
            pause = term.every.toNanos();
            try {
                confirm();
            } catch (Refused error) {
                lose("the daemon says: " + error.getMessage());
            } catch (NoAnswer error) {
                if (wish.ttl() == null) {
                    lose(error.getMessage());
                } else {
                    line = locks.line();
                    pause /= 4;
                }
            }
        }
        if (reason != null) {
            line.close();
        }
    }

    private void confirm() {
        long sent = System.nanoTime();
        if (wish.ttl() == null) {
            line.ask(term.answer, "PING");
        } else {
            String ttl = Long.toString(wish.ttl().toMillis());
            line.ask(term.answer, "RENEW", name, Long.toString(token), "TTL", ttl);
        }
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

    private void lose(String why) {
        if (over.getCount() == 0 || !end(why)) {
            return;
        }
        over.countDown();
        if (wish.onLost() != null) {
            wish.onLost().accept(this);
        }
    }

    private LockLost lost(Throwable cause) {
        String why = reason == null ? UNRENEWED : reason;
        return new LockLost(name + " (token " + token + "): " + why, cause);
    }
}
