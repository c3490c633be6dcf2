/*
 * A ticket lock: each takes the next number and waits until it is served, in order.
 * It spins for a while, then sleeps until the number served changes. The number is
 * also a fencing token. A waiter cannot leave the queue: timeouts are -ENOTSUP, and
 * an interrupted one waits on, which ends as soon as those before it release.
 *
 *     cc -O2 -shared -fPIC -I tool/own-locks -o ticket.so tool/own-locks/examples/ticket.c
 *     jostle contend 'lib:./ticket.so?spins=1000'
 */
#include "jostle_lock.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

struct lock {
    _Alignas(128) atomic_uint next;
    _Alignas(128) atomic_uint serving;
    atomic_uint sleepers;
    _Atomic uint64_t grants;
};

struct shared {
    unsigned spins;
    _Alignas(128) struct lock locks[];
};

int jostle_abi(void) { return JOSTLE_LOCK_ABI; }

size_t jostle_shared_bytes(const char *args, unsigned workers, unsigned keys)
{
    (void)args, (void)workers;
    return sizeof(struct shared) + keys * sizeof(struct lock);
}

int jostle_prepare(void *shared, const char *args, unsigned workers, unsigned keys)
{
    struct shared *all = shared;
    (void)workers, (void)keys;
    all->spins = 100;
    if (*args && sscanf(args, "spins=%u", &all->spins) != 1)
        return -EINVAL;
    return 0;
}

void *jostle_join(void *shared, unsigned worker)
{
    (void)worker;
    return shared;
}

static void await(struct lock *lock, unsigned ticket, unsigned spins)
{
    unsigned served;
    while ((served = atomic_load(&lock->serving)) != ticket) {
        if (spins > 0) {
            spins--;
            continue;
        }
        /* Before the kernel compares: a release that we miss sees us. */
        atomic_fetch_add(&lock->sleepers, 1);
        syscall(SYS_futex, &lock->serving, FUTEX_WAIT, served, NULL);
        atomic_fetch_sub(&lock->sleepers, 1);
    }
}

int jostle_acquire(void *self, unsigned key, int is_shared, int64_t deadline_ns,
                   uint64_t *token)
{
    struct shared *all = self;
    struct lock *lock = &all->locks[key];
    if (is_shared || deadline_ns > 0)
        return -ENOTSUP;
    if (deadline_ns == 0) {
        unsigned served = atomic_load(&lock->serving);
        if (!atomic_compare_exchange_strong(&lock->next, &served, served + 1))
            return 0;
    } else {
        await(lock, atomic_fetch_add(&lock->next, 1), all->spins);
    }
    /* Only the owner writes it; the ticket itself wraps after 2^32. */
    *token = atomic_load_explicit(&lock->grants, memory_order_relaxed) + 1;
    atomic_store_explicit(&lock->grants, *token, memory_order_relaxed);
    return 1;
}

int jostle_release(void *self, unsigned key, int is_shared)
{
    struct lock *lock = &((struct shared *)self)->locks[key];
    (void)is_shared;
    atomic_fetch_add(&lock->serving, 1);
    if (atomic_load(&lock->sleepers) > 0)
        syscall(SYS_futex, &lock->serving, FUTEX_WAKE, INT_MAX);
    return 0;
}

void jostle_leave(void *self) { (void)self; }
