/* The locks of both peers: the bare calls, nothing around them.
 *
 * Everything that forked workers share is made by lock_prepare() in the parent;
 * lock_join() makes a worker's own open file, since flock and OFD locks belong
 * to the open file and not to the process. */

#ifndef LOCK_H
#define LOCK_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum kind { FLOCK, OFD, SYSV, FUTEX, PTHREAD };

struct lock {
    enum kind kind;
    char path[256];
    int file;
    int set;
    /* Each on lines of its own. */
    struct shared {
        _Alignas(128) _Atomic uint32_t word;
        _Alignas(128) pthread_mutex_t mutex;
    } *shared;
};

static void die(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t nanos(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *shared_memory(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        die("mmap");
    return at;
}

static enum kind kind_named(const char *name) {
    static const char *const names[] = {"flock", "ofd", "sysv", "futex", "pthread"};
    for (int kind = FLOCK; kind <= PTHREAD; kind++)
        if (strcmp(name, names[kind]) == 0)
            return (enum kind)kind;
    fprintf(stderr, "%s is none of: flock ofd sysv futex pthread\n", name);
    exit(2);
}

static void lock_join(struct lock *lock) {
    if (lock->kind != FLOCK && lock->kind != OFD)
        return;
    lock->file = open(lock->path, O_RDWR | O_CLOEXEC);
    if (lock->file < 0)
        die(lock->path);
}

static void lock_prepare(struct lock *lock, enum kind kind, const char *directory) {
    memset(lock, 0, sizeof *lock);
    lock->kind = kind;
    lock->shared = shared_memory(sizeof *lock->shared);
    if (kind == FLOCK || kind == OFD) {
        snprintf(lock->path, sizeof lock->path, "%s/jostle-peer-XXXXXX", directory);
        int file = mkstemp(lock->path);
        if (file < 0)
            die(lock->path);
        close(file);
    }
    if (kind == SYSV) {
        /* In a namespace of our own the set cannot outlive us; without the
         * right to one, lock_remove() has to do. */
        (void)unshare(CLONE_NEWIPC);
        lock->set = semget(IPC_PRIVATE, 1, 0600);
        if (lock->set < 0 || semctl(lock->set, 0, SETVAL, 1) != 0)
            die("semget");
    }
    if (kind == PTHREAD) {
        pthread_mutexattr_t shared;
        pthread_mutexattr_init(&shared);
        pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
        if (pthread_mutex_init(&lock->shared->mutex, &shared) != 0)
            die("pthread_mutex_init");
    }
}

static void lock_remove(struct lock *lock) {
    if (lock->path[0] != 0)
        unlink(lock->path);
    if (lock->kind == SYSV)
        semctl(lock->set, 0, IPC_RMID);
}

static inline int record(int file, int command, short type) {
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    return fcntl(file, command, &range);
}

static inline int semaphore(int set, short by) {
    struct sembuf operation = {.sem_num = 0, .sem_op = by, .sem_flg = 0};
    return semop(set, &operation, 1);
}

/* The mutex of three states (Drepper, "Futexes are tricky"). */
static inline int futex_acquire(_Atomic uint32_t *word) {
    uint32_t free = 0;
    if (atomic_compare_exchange_strong_explicit(word, &free, 1, memory_order_acquire,
                                                memory_order_relaxed))
        return 0;
    while (atomic_exchange_explicit(word, 2, memory_order_acquire) != 0)
        if (syscall(SYS_futex, word, FUTEX_WAIT, 2, NULL) != 0 && errno == EINTR)
            return -1;
    return 0;
}

static inline int futex_release(_Atomic uint32_t *word) {
    if (atomic_exchange_explicit(word, 0, memory_order_release) == 2)
        syscall(SYS_futex, word, FUTEX_WAKE, 1);
    return 0;
}

/* Both give 0, or -1 and errno; EINTR ends a wait. A mutex of the C library
 * knows no such end. */
static inline __attribute__((always_inline)) int acquire(struct lock *lock, enum kind kind) {
    switch (kind) {
    case FLOCK:
        return flock(lock->file, LOCK_EX);
    case OFD:
        return record(lock->file, F_OFD_SETLKW, F_WRLCK);
    case SYSV:
        return semaphore(lock->set, -1);
    case FUTEX:
        return futex_acquire(&lock->shared->word);
    case PTHREAD:
        return -pthread_mutex_lock(&lock->shared->mutex);
    }
    return -1;
}

static inline __attribute__((always_inline)) int release(struct lock *lock, enum kind kind) {
    switch (kind) {
    case FLOCK:
        return flock(lock->file, LOCK_UN);
    case OFD:
        return record(lock->file, F_OFD_SETLK, F_UNLCK);
    case SYSV:
        return semaphore(lock->set, 1);
    case FUTEX:
        return futex_release(&lock->shared->word);
    case PTHREAD:
        return -pthread_mutex_unlock(&lock->shared->mutex);
    }
    return -1;
}

#endif
