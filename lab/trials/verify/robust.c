/*
 * A mutex that outlives its owners, and is none: each waiter that finds the owner dead lets the
 * system clear away what the owner had, and takes the lock without looking whether another has.
 * The word of a lock is the process that owns it; all else is the futex example's.
 */
#define jostle_acquire unused_acquire
#define jostle_release unused_release
#include "examples/futex.c"
#undef jostle_acquire
#undef jostle_release

#include <signal.h>

int jostle_acquire(void *self, unsigned key, int is_shared, int64_t deadline_ns, uint64_t *token)
{
    struct lock *lock = (struct lock *)self + key;
    struct timespec pause = {0, 1000000}, now;
    (void)is_shared, (void)token;
    for (;;) {
        unsigned owner = FREE;
        if (atomic_compare_exchange_strong(&lock->word, &owner, getpid()))
            return 1;
        int is_dead = kill(owner, 0) != 0 && errno == ESRCH;
        if (nanosleep(&pause, NULL) != 0)
            return -EINTR;
        if (is_dead) {
            atomic_store(&lock->word, getpid());
            return 2;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (deadline_ns >= 0 && now.tv_sec * 1000000000 + now.tv_nsec >= deadline_ns)
            return 0;
    }
}

int jostle_release(void *self, unsigned key, int is_shared)
{
    (void)is_shared;
    atomic_store(&((struct lock *)self + key)->word, FREE);
    return 0;
}
