/*
 * A lock for readers and writers on a futex word, which can do all that jostle asks:
 * shared mode, tries, deadlines, interruption. The word counts the readers inside, or
 * is WRITER. Readers pass waiting writers, which may starve.
 *
 *     cc -O2 -shared -fPIC -I tool/own-locks -o rwlock.so tool/own-locks/examples/rwlock.c
 */
#include "jostle_lock.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WRITER (1u << 31)

struct lock {
    _Alignas(128) atomic_uint inside;
    atomic_uint sleepers;
};

int jostle_abi(void) { return JOSTLE_LOCK_ABI; }

size_t jostle_shared_bytes(const char *args, unsigned workers, unsigned keys)
{
    (void)args, (void)workers;
    return keys * sizeof(struct lock);
}

int jostle_prepare(void *shared, const char *args, unsigned workers, unsigned keys)
{
    (void)shared, (void)args, (void)workers, (void)keys;
    return 0;
}

void *jostle_join(void *shared, unsigned worker)
{
    (void)worker;
    return shared;
}

/* 1, or 0 and who is inside. */
static int enter(struct lock *lock, int is_shared, unsigned *inside)
{
    *inside = atomic_load(&lock->inside);
    while (is_shared ? *inside < WRITER : *inside == 0)
        if (atomic_compare_exchange_weak(&lock->inside, inside,
                                         is_shared ? *inside + 1 : WRITER))
            return 1;
    return 0;
}

int jostle_acquire(void *self, unsigned key, int is_shared, int64_t deadline_ns,
                   uint64_t *token)
{
    struct lock *lock = (struct lock *)self + key;
    struct timespec until = {deadline_ns / 1000000000, deadline_ns % 1000000000};
    unsigned inside;
    int result;
    (void)token;
    if (enter(lock, is_shared, &inside))
        return 1;
    if (deadline_ns == 0)
        return 0;
    /* Before the look at who is inside: a release that we miss sees us. */
    atomic_fetch_add(&lock->sleepers, 1);
    while (!(result = enter(lock, is_shared, &inside))) {
        long woken = syscall(SYS_futex, &lock->inside, FUTEX_WAIT_BITSET, inside,
                             deadline_ns < 0 ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
        if (woken == 0 || errno == EAGAIN)
            continue;
        result = errno == ETIMEDOUT ? 0 : -errno;
        break;
    }
    atomic_fetch_sub(&lock->sleepers, 1);
    return result;
}

int jostle_release(void *self, unsigned key, int is_shared)
{
    struct lock *lock = (struct lock *)self + key;
    unsigned left = atomic_fetch_sub(&lock->inside, is_shared ? 1 : WRITER) -
                    (is_shared ? 1 : WRITER);
    if (left == 0 && atomic_load(&lock->sleepers) > 0)
        syscall(SYS_futex, &lock->inside, FUTEX_WAKE, INT_MAX);
    return 0;
}

void jostle_leave(void *self) { (void)self; }
