/* The bare loop: how many uncontended acquire + release pairs one process does.
 *
 *     pairs KIND MILLISECONDS DIRECTORY
 *
 * Prints the pairs and the nanoseconds they took. */

#include "lock.h"

/* Pairs between two looks at the clock, which is then under a thousandth of a
 * futex's pair. */
enum { BATCH = 4000 };

/* Compiled once for each kind, so that the loop does not ask which it is. */
static inline __attribute__((always_inline)) uint64_t loop(struct lock *lock, enum kind kind,
                                                           uint64_t end, uint64_t *now) {
    uint64_t pairs = 0;
    do {
        for (int i = 0; i < BATCH; i++)
            if (acquire(lock, kind) != 0 || release(lock, kind) != 0)
                die("pair");
        pairs += BATCH;
        *now = nanos();
    } while (*now < end);
    return pairs;
}

static uint64_t loop_of(struct lock *lock, uint64_t end, uint64_t *now) {
    switch (lock->kind) {
    case FLOCK:
        return loop(lock, FLOCK, end, now);
    case OFD:
        return loop(lock, OFD, end, now);
    case SYSV:
        return loop(lock, SYSV, end, now);
    case FUTEX:
        return loop(lock, FUTEX, end, now);
    case PTHREAD:
        return loop(lock, PTHREAD, end, now);
    }
    return 0;
}

int main(int count, char **arguments) {
    if (count != 4) {
        fprintf(stderr, "pairs KIND MILLISECONDS DIRECTORY\n");
        return 2;
    }
    struct lock lock;
    lock_prepare(&lock, kind_named(arguments[1]), arguments[3]);
    lock_join(&lock);
    uint64_t span = (uint64_t)atoll(arguments[2]) * 1000000u;
    uint64_t now;
    /* A tenth of the time to warm up, not counted. */
    loop_of(&lock, nanos() + span / 10, &now);
    uint64_t start = nanos();
    uint64_t pairs = loop_of(&lock, start + span, &now);
    lock_remove(&lock);
    printf("%llu %llu\n", (unsigned long long)pairs, (unsigned long long)(now - start));
    return 0;
}
