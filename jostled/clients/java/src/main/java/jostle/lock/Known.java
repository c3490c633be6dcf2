package jostle.lock;

import java.util.HashMap;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * What this program knows of the locks of a session.
 *
 * <p>A request that got no answer may have been granted. Asked again, the daemon refuses with {@code
 * ALREADYHELD token mode}. The hold is that of the unanswered request, unless another part of this
 * program has it: each token is given out once. A name is remembered as long as it is held, asked for
 * or in doubt, so that a reply that comes late cannot claim what was released meanwhile.
 */
final class Known {
    private static final Pattern ALREADY_HELD = Pattern.compile("^ALREADYHELD (\\d+) (\\w+)");

    private final Map<String, Name> names = new HashMap<>();

    private static final class Name {
        private long last = -1;
        private int users;
        private boolean inDoubt;
    }

    private Name entry(String name) {
        return names.computeIfAbsent(name, none -> new Name());
    }

    /** Begins a request for a name; {@link #forget} ends it. */
    synchronized void ask(String name) {
        entry(name).users++;
    }

    /** A request got no answer; it may be granted at any later time. */
    synchronized void doubt(String name) {
        entry(name).inDoubt = true;
    }

    /** Whether the token is new; then it is this caller's alone, until {@link #forget}. */
    synchronized boolean claim(String name, long token) {
        Name found = entry(name);
        if (token <= found.last) {
            return false;
        }
        found.last = token;
        found.users++;
        return true;
    }

    /** The token of an unanswered request that was granted, if a refusal tells of one; else null. */
    synchronized Long adopt(String name, String mode, String refusal) {
        Matcher found = ALREADY_HELD.matcher(refusal);
        if (!found.find() || !found.group(2).equals(mode) || !entry(name).inDoubt) {
            return null;
        }
        long token = Long.parseLong(found.group(1));
        return claim(name, token) ? token : null;
    }

    /** A request has ended, or a claimed lock was released. */
    synchronized void forget(String name) {
        Name found = entry(name);
        found.users--;
        if (found.users == 0 && !found.inDoubt) {
            names.remove(name);
        }
    }
}
