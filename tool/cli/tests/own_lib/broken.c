/*
 * A mutex with a fault, chosen by the arguments: `lib:broken.so?lets-in`. Without one
 * it is sound. What must be wrong before there are arguments is chosen when it is
 * compiled: -DABI=2, -DWITHOUT_ACQUIRE, -DDIES_AT_LOAD, -DPRINTS.
 */
#ifdef WITHOUT_ACQUIRE
#define jostle_acquire under_another_name
#endif
#include "jostle_lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef ABI
#define ABI JOSTLE_LOCK_ABI
#endif

enum { FREE, TAKEN, CONTENDED };

struct lock {
    _Alignas(128) atomic_uint word;
    atomic_uint releases;
};

struct shared {
    char fault[64];
    unsigned workers;
    atomic_uint left;
    _Alignas(128) struct lock locks[];
};

struct self {
    struct shared *shared;
    unsigned random;
    int intruded;
};

/* A fault of the memory, at which nobody returns from the handler. */
static int *volatile nowhere;
static void crash(void) { *nowhere = 0; }

static void hang(void)
{
    for (;;)
        pause();
}

static int is(struct shared *all, const char *fault) { return !strcmp(all->fault, fault); }

#if defined(DIES_AT_LOAD) || defined(PRINTS)
__attribute__((constructor)) static void at_load(void)
{
#ifdef DIES_AT_LOAD
    raise(SIGILL);
#else
    printf("the library speaks\n");
    fflush(stdout);
#endif
}
#endif

int jostle_abi(void) { return ABI; }

size_t jostle_shared_bytes(const char *args, unsigned workers, unsigned keys)
{
    (void)workers;
    return !strcmp(args, "wants-all") ? SIZE_MAX : sizeof(struct shared) + keys * sizeof(struct lock);
}

int jostle_prepare(void *shared, const char *args, unsigned workers, unsigned keys)
{
    struct shared *all = shared;
    (void)keys;
    all->workers = workers;
    snprintf(all->fault, sizeof all->fault, "%s", args);
    if (is(all, "dies-in-prepare"))
        abort();
    if (is(all, "hangs-in-prepare"))
        hang();
    if (is(all, "prepares-7"))
        return 7;
    return 0;
}

void *jostle_join(void *shared, unsigned worker)
{
    struct self *self = malloc(sizeof *self);
    if (is(shared, "dies-in-join") && ((struct shared *)shared)->workers > 1)
        crash();
    if (is(shared, "cannot-join")) {
        errno = ENOSPC;
        return NULL;
    }
    *self = (struct self){shared, 7 + 1000003 * worker, 0};
    return self;
}

static int wait_for(struct self *self, struct lock *lock, int64_t deadline_ns)
{
    struct timespec until = {deadline_ns / 1000000000, deadline_ns % 1000000000};
    while (atomic_exchange(&lock->word, CONTENDED) != FREE) {
        long woken = syscall(SYS_futex, &lock->word, FUTEX_WAIT_BITSET, CONTENDED,
                             deadline_ns < 0 ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
        if (woken == 0 || errno == EAGAIN || is(self->shared, "deaf"))
            continue;
        return errno == ETIMEDOUT ? 0 : -errno;
    }
    return 1;
}

int jostle_acquire(void *handle, unsigned key, int is_shared, int64_t deadline_ns,
                   uint64_t *token)
{
    struct self *self = handle;
    struct lock *lock = &self->shared->locks[key];
    unsigned expected = FREE;
    (void)token;
    if (is(self->shared, "hangs-in-acquire"))
        hang();
    if (is_shared)
        return -ENOTSUP;
    if (is(self->shared, "dies-in-acquire") && self->shared->workers > 1 &&
        atomic_load(&lock->releases) > 500)
        crash();
    if (is(self->shared, "exits-in-acquire") && self->shared->workers > 1 &&
        atomic_load(&lock->releases) > 500)
        exit(0);
    if (is(self->shared, "returns-7"))
        return 7;
    if (is(self->shared, "refuses-for-ever") && deadline_ns == -1)
        return 0;
    self->random = self->random * 1664525 + 1013904223;
    if (is(self->shared, "lets-in") && (self->random >> 8) % 1000 == 0) {
        self->intruded = 1;
        return 1;
    }
    if (atomic_compare_exchange_strong(&lock->word, &expected, TAKEN))
        return 1;
    return deadline_ns == 0 ? 0 : wait_for(self, lock, deadline_ns);
}

int jostle_release(void *handle, unsigned key, int is_shared)
{
    struct self *self = handle;
    struct lock *lock = &self->shared->locks[key];
    unsigned releases = atomic_fetch_add(&lock->releases, 1);
    (void)is_shared;
    if (self->intruded) {
        self->intruded = 0;
        return 0;
    }
    if (is(self->shared, "releases-9"))
        return 9;
    if (is(self->shared, "hangs-in-release"))
        hang();
    if (is(self->shared, "dies-in-release"))
        crash();
    /* After some time a lock is not freed. (A single worker would wait for itself
     * before the first run, when jostle measures its own cost.) */
    int leaks = is(self->shared, "leaks") || is(self->shared, "deaf");
    if (leaks && self->shared->workers > 1 && releases > 50)
        return 0;
    unsigned was = atomic_exchange(&lock->word, FREE);
    /* One in twenty of those that sleep is never told. */
    if (was == CONTENDED && !(is(self->shared, "loses") && releases % 20 == 0))
        syscall(SYS_futex, &lock->word, FUTEX_WAKE, 1);
    return 0;
}

void jostle_leave(void *handle)
{
    struct self *self = handle;
    struct timespec left = {3, 0};
    if (is(self->shared, "hangs-in-leave"))
        hang();
    if (is(self->shared, "leaves-late") && self->shared->workers > 1)
        while (nanosleep(&left, &left) == -1 && errno == EINTR)
            ;
    atomic_fetch_add(&self->shared->left, 1);
    free(self);
}

void jostle_finish(void *shared)
{
    struct shared *all = shared;
    int early = is(shared, "leaves-late") && atomic_load(&all->left) < all->workers;
    if (is(shared, "dies-in-finish") || early)
        abort();
}
