/*
 * The queue lock of Mellor-Crummey and Scott (ACM TOCS 9, 1991): a waiter hangs its
 * node behind the last one and watches that node alone, so that a release disturbs
 * nobody else's cache. After some turns it sleeps. Nodes are named by the worker's
 * number plus one, 0 is nobody; a worker has one for each lock, since it may hold
 * several. A waiter cannot leave the queue: timeouts are -ENOTSUP, and an interrupted
 * one waits on.
 *
 *     cc -O2 -shared -fPIC -I tool/own-locks -o mcs.so tool/own-locks/examples/mcs.c
 */
#include "jostle_lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPINS = 100 };
enum { GO, WAIT, ASLEEP };

struct node {
    _Alignas(128) atomic_uint state;
    atomic_uint next;
};

struct tail {
    _Alignas(128) atomic_uint last;
};

struct shared {
    unsigned workers, keys;
    /* The tails, then the nodes of worker 0, of worker 1, ... */
    _Alignas(128) struct tail tails[];
};

struct self {
    struct shared *shared;
    struct node *nodes;
    unsigned name;
};

int jostle_abi(void) { return JOSTLE_LOCK_ABI; }

size_t jostle_shared_bytes(const char *args, unsigned workers, unsigned keys)
{
    (void)args;
    return sizeof(struct shared) + keys * sizeof(struct tail) +
           (size_t)workers * keys * sizeof(struct node);
}

int jostle_prepare(void *shared, const char *args, unsigned workers, unsigned keys)
{
    struct shared *all = shared;
    all->workers = workers;
    all->keys = keys;
    return *args ? -EINVAL : 0;
}

static struct node *nodes_of(struct shared *all, unsigned worker)
{
    return (struct node *)(all->tails + all->keys) + (size_t)worker * all->keys;
}

void *jostle_join(void *shared, unsigned worker)
{
    struct self *self = malloc(sizeof *self);
    if (self)
        *self = (struct self){shared, nodes_of(shared, worker), worker + 1};
    return self;
}

static void await(struct node *mine)
{
    for (int spins = 0; spins < SPINS; spins++)
        if (atomic_load_explicit(&mine->state, memory_order_acquire) == GO)
            return;
    unsigned waiting = WAIT;
    atomic_compare_exchange_strong(&mine->state, &waiting, ASLEEP);
    while (atomic_load_explicit(&mine->state, memory_order_acquire) != GO)
        syscall(SYS_futex, &mine->state, FUTEX_WAIT, ASLEEP, NULL);
}

int jostle_acquire(void *handle, unsigned key, int is_shared, int64_t deadline_ns,
                   uint64_t *token)
{
    struct self *self = handle;
    struct tail *tail = &self->shared->tails[key];
    struct node *mine = &self->nodes[key];
    unsigned nobody = 0;
    (void)token;
    if (is_shared || deadline_ns > 0)
        return -ENOTSUP;
    atomic_store_explicit(&mine->next, 0, memory_order_relaxed);
    if (deadline_ns == 0)
        return atomic_compare_exchange_strong(&tail->last, &nobody, self->name);
    atomic_store_explicit(&mine->state, WAIT, memory_order_relaxed);
    unsigned before = atomic_exchange(&tail->last, self->name);
    if (before) {
        atomic_store(&nodes_of(self->shared, before - 1)[key].next, self->name);
        await(mine);
    }
    return 1;
}

int jostle_release(void *handle, unsigned key, int is_shared)
{
    struct self *self = handle;
    struct node *mine = &self->nodes[key];
    unsigned me = self->name, after;
    (void)is_shared;
    if (!atomic_load(&mine->next) &&
        atomic_compare_exchange_strong(&self->shared->tails[key].last, &me, 0))
        return 0;
    /* Somebody is behind us, and may not have said so yet. */
    while (!(after = atomic_load(&mine->next)))
        ;
    struct node *theirs = &nodes_of(self->shared, after - 1)[key];
    if (atomic_exchange_explicit(&theirs->state, GO, memory_order_acq_rel) == ASLEEP)
        syscall(SYS_futex, &theirs->state, FUTEX_WAKE, 1);
    return 0;
}

void jostle_leave(void *self) { free(self); }
