/*
 * A mutex of three states on a futex word: free, taken, taken with sleepers. It can
 * try, give up in time, and be interrupted; owners are not told apart, so that what
 * a dead owner held stays taken.
 *
 *     cc -O2 -shared -fPIC -I tool/own-locks -o futex.so tool/own-locks/examples/futex.c
 */
#include "jostle_lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { FREE, TAKEN, CONTENDED };

/* A line of its own for each lock: 128 bytes, since CPUs fetch lines in pairs. */
struct lock {
    _Alignas(128) atomic_uint word;
};

int jostle_abi(void) { return JOSTLE_LOCK_ABI; }

size_t jostle_shared_bytes(const char *args, unsigned workers, unsigned keys)
{
    (void)args, (void)workers;
    return keys * sizeof(struct lock);
}

int jostle_prepare(void *shared, const char *args, unsigned workers, unsigned keys)
{
    /* Zeroed memory is free locks. */
    (void)shared, (void)workers, (void)keys;
    return *args ? -EINVAL : 0;
}

void *jostle_join(void *shared, unsigned worker)
{
    (void)worker;
    return shared;
}

static int wait_for(struct lock *lock, int64_t deadline_ns)
{
    struct timespec until = {deadline_ns / 1000000000, deadline_ns % 1000000000};
    /* From here on the word says that somebody may sleep. */
    while (atomic_exchange_explicit(&lock->word, CONTENDED, memory_order_acquire) != FREE) {
        /* The shared kind of futex, since the sleepers are processes. */
        long woken = syscall(SYS_futex, &lock->word, FUTEX_WAIT_BITSET, CONTENDED,
                             deadline_ns < 0 ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
        if (woken == 0 || errno == EAGAIN)
            continue;
        return errno == ETIMEDOUT ? 0 : -errno;
    }
    return 1;
}

int jostle_acquire(void *self, unsigned key, int is_shared, int64_t deadline_ns,
                   uint64_t *token)
{
    struct lock *lock = (struct lock *)self + key;
    unsigned expected = FREE;
    (void)token;
    if (is_shared)
        return -ENOTSUP;
    if (atomic_compare_exchange_strong_explicit(&lock->word, &expected, TAKEN,
                                                memory_order_acquire, memory_order_relaxed))
        return 1;
    return deadline_ns == 0 ? 0 : wait_for(lock, deadline_ns);
}

int jostle_release(void *self, unsigned key, int is_shared)
{
    struct lock *lock = (struct lock *)self + key;
    (void)is_shared;
    if (atomic_exchange_explicit(&lock->word, FREE, memory_order_release) == CONTENDED)
        syscall(SYS_futex, &lock->word, FUTEX_WAKE, 1);
    return 0;
}

void jostle_leave(void *self) { (void)self; }
