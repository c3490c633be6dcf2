package jostle.lock;

/** What can go wrong with a lock of jostled. */
public abstract sealed class LockException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private LockException(String message, Throwable cause) {
        super(message, cause);
    }

    /** Somebody else had the lock for the whole wait. */
    public static final class NotGranted extends LockException {
        private static final long serialVersionUID = 1;

        NotGranted(String message) {
            super(message, null);
        }
    }

    /**
     * The daemon did not answer in time, or could not be reached.
     *
     * <p>The connection is closed, which takes the request out of the line. A lock that was granted
     * in that moment ends with the connection; a lease, after four timeouts at most, since it gets its
     * length only when its grant is known.
     */
    public static final class NoAnswer extends LockException {
        private static final long serialVersionUID = 1;

        NoAnswer(String message, Throwable cause) {
            super(message, cause);
        }
    }

    /** Somebody else may hold the lock, or may have held it meanwhile. */
    public static final class LockLost extends LockException {
        private static final long serialVersionUID = 1;

        LockLost(String message, Throwable cause) {
            super(message, cause);
        }
    }

    /** The daemon answered with an error, whose text this is. */
    public static final class Refused extends LockException {
        private static final long serialVersionUID = 1;

        Refused(String message, Throwable cause) {
            super(message, cause);
        }
    }
}
