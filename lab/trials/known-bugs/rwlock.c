/*
 * The readers-writer lock of POSIX threads in its default kind, shared by processes. All but the
 * calls of the lock is the example's. No signal ends its waits, so that each is of 50 ms.
 *
 *     cc -O2 -shared -fPIC -I tool/own-locks -o rwlock.so lab/trials/known-bugs/rwlock.c
 */
#define _GNU_SOURCE
#define jostle_prepare unused_prepare
#define jostle_acquire unused_acquire
#define jostle_release unused_release
#include "examples/rwlock.c"
#undef jostle_prepare
#undef jostle_acquire
#undef jostle_release

#include <pthread.h>

_Static_assert(sizeof(pthread_rwlock_t) <= sizeof(struct lock), "it lies in the example's lock");

static pthread_rwlock_t *at(void *shared, unsigned key)
{
    return (pthread_rwlock_t *)((struct lock *)shared + key);
}

int jostle_prepare(void *shared, const char *args, unsigned workers, unsigned keys)
{
    pthread_rwlockattr_t kind;
    (void)args, (void)workers;
    pthread_rwlockattr_init(&kind);
    pthread_rwlockattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    for (unsigned key = 0; key < keys; key++)
        pthread_rwlock_init(at(shared, key), &kind);
    return 0;
}

int jostle_acquire(void *self, unsigned key, int is_shared, int64_t deadline_ns, uint64_t *token)
{
    struct timespec now;
    (void)token;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t soon_ns = now.tv_sec * 1000000000LL + now.tv_nsec + 50000000;
    int is_last = deadline_ns >= 0 && deadline_ns <= soon_ns;
    int64_t until_ns = is_last ? deadline_ns : soon_ns;
    struct timespec until = {until_ns / 1000000000, until_ns % 1000000000};
    int error = is_shared ? pthread_rwlock_clockrdlock(at(self, key), CLOCK_MONOTONIC, &until)
                          : pthread_rwlock_clockwrlock(at(self, key), CLOCK_MONOTONIC, &until);
    if (error == ETIMEDOUT)
        return is_last ? 0 : -EINTR;
    return error == 0 ? 1 : -error;
}

int jostle_release(void *self, unsigned key, int is_shared)
{
    (void)is_shared;
    return -pthread_rwlock_unlock(at(self, key));
}
