package jostle.lock;

import java.util.Map;

/**
 * Several locks that were granted in one step, and are released together. All are lost as soon as one
 * is.
 */
public final class HeldAll extends Kept {
    private final Map<String, Long> tokens;

    HeldAll(Parts parts, Map<String, Long> tokens) {
        super(parts);
        this.tokens = tokens;
    }

    /** The fencing token of each name, in their order; larger than those of every earlier grant. */
    public Map<String, Long> tokens() {
        return tokens;
    }
}
