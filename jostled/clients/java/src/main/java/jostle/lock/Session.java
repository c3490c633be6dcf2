package jostle.lock;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import jostle.lock.LockException.NoAnswer;
import jostle.lock.LockException.Refused;

/**
 * A session that is open: it owns many locks, and is renewed for all of them. Whether it is lost is
 * for all of its locks alike, and closing it ends them.
 */
public final class Session extends Kept {
    private final Locks locks;
    private final String id;
    private final Known known = new Known();
    private final Object guard = new Object();
    private Line errands; // Opened when needed.

    Session(Parts parts, Locks locks, String id) {
        super(parts);
        this.locks = locks;
        this.id = id;
    }

    /** Who opens a session, for people. Arguments may be secret. */
    static String opener() {
        String host = "?";
        try {
            host = Files.readString(Path.of("/proc/sys/kernel/hostname")).strip();
        } catch (IOException unknown) {
            // It is for people only.
        }
        String[] command = System.getProperty("sun.java.command", "java").split(" ");
        long pid = ProcessHandle.current().pid();
        String text = System.getProperty("user.name") + "@" + host + " pid " + pid + " " + command[0];
        text = text.replaceAll("\\p{Cc}", "");
        return text.substring(0, Math.min(text.length(), 80)); // 240 bytes at most.
    }

    /** Does not let the readers of a log take the session up. */
    static String title(String id) {
        return "session " + id.substring(0, Math.min(8, id.length())) + "...";
    }

    /** What {@link Locks#takeUp} takes up again; only the same user can. Keep it secret. */
    public String id() {
        return id;
    }

    /**
     * Waits for a lock of this session; its wish has neither ttl nor onLost, which the session has.
     *
     * <p>After NoAnswer the session may have the lock. Acquire it again: that gives the lock with its
     * token if the session has it, and waits for it otherwise.
     *
     * @throws LockException NotGranted, NoAnswer, Refused, or LockLost if the session is over
     */
    public SessionHeld acquire(String name, Wish wish) {
        if (wish.ttl() != null || wish.onLost() != null) {
            throw new IllegalArgumentException("a lock of a session has no ttl and no onLost");
        }
        checkOpen();
        known.ask(name);
        try {
            SessionHeld held = new SessionHeld(this, name, token(name, wish), true);
            held.check();
            return held;
        } finally {
            known.forget(name);
        }
    }

    private long token(String name, Wish wish) {
        long token;
        try {
            token = locks.lockInSession(name, wish, id, known);
        } catch (Refused error) {
            Long adopted = known.adopt(name, wish.mode(), error.getMessage());
            if (adopted != null) {
                return adopted;
            }
            if (!error.getMessage().startsWith("NOSESSION")) {
                throw error;
            }
            String why = "the daemon says: " + error.getMessage();
            // The callback gets a thread of its own.
            Thread teller = new Thread(() -> lose(why), "jostle-lock teller");
            teller.setDaemon(true);
            teller.start();
            throw lost(why, error);
        }
        if (!known.claim(name, token)) {
            // Another request was in doubt, and has taken this grant for its own.
            String why = "ALREADYHELD " + token + " " + wish.mode() + " by another part of this program";
            throw new Refused(why, null);
        }
        return token;
    }

    /** A lock that this session was granted before it was taken up by its id. */
    public SessionHeld held(String name, long token) {
        return new SessionHeld(this, name, token, known.claim(name, token));
    }

    void forget(String name) {
        known.forget(name);
    }

    @Override
    public void close() {
        try {
            super.close();
        } finally {
            synchronized (guard) {
                if (errands != null) {
                    errands.close();
                }
            }
        }
    }

    void checkOpen() {
        check();
        if (isOver()) {
            throw lost("it was closed", null);
        }
    }

    void unlock(String name, long token) {
        List<String> words = List.of("UNLOCK", name, Long.toString(token));
        synchronized (guard) {
            if (errands != null) {
                try {
                    errands.ask(locks.timeout(), words);
                    return;
                } catch (NoAnswer error) {
                    // The connection has ended; another one may do.
                }
            }
            errands = locks.line();
            errands.ask(locks.timeout(), words);
        }
    }
}
