package jostle.lock;

/** A lock that was granted; for {@code try (Held held = locks.acquire(...))}. */
public final class Held extends Kept {
    private final String name;
    private final long token;

    Held(Parts parts, String name, long token) {
        super(parts);
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
}
