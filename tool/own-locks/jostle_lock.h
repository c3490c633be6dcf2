/*
 * jostle_lock.h: the functions by which jostle measures a lock of your own.
 *
 * Compile a shared library that defines them, and name it as a target:
 *
 *     cc -O2 -shared -fPIC -o my_lock.so my_lock.c
 *     jostle contend lib:./my_lock.so futex -w 2:10
 *
 * C, or any language that exports C functions. Nothing of jostle is linked.
 * tool/docs/own-locks.md is a walk through it, tool/own-locks/examples/ has complete locks.
 *
 * The order of the calls, and the process that makes each:
 *
 *     one process that prepares        each worker, after it was forked
 *     ---------------------------      -----------------------------------
 *     jostle_abi
 *     jostle_shared_bytes
 *     jostle_prepare
 *                                      jostle_abi
 *                                      jostle_join
 *                                      jostle_acquire, jostle_release, ...
 *                                      jostle_leave
 *     jostle_finish
 *
 * - A worker is a process, or a thread with `--as threads`: then all workers of
 *   the process have the library in common, and the functions are called by
 *   several threads at a time, each with its own handle.
 * - jostle_shared_bytes is called in a process of its own. Keep nothing in
 *   variables for jostle_prepare: arguments are all that both see.
 * - What jostle_prepare leaves in variables, workers do not see: they load the
 *   library afresh. What they share lies in `shared`.
 * - Each function but jostle_acquire and jostle_release has 10 seconds.
 * - Standard output is jostle's: what you print there comes out on standard error.
 * - SIGUSR1 is jostle's, installed without SA_RESTART: leave its handler alone.
 *
 * jostle_abi, jostle_prepare, jostle_join, jostle_acquire, jostle_release and
 * jostle_leave must be there; jostle_shared_bytes and jostle_finish may be absent.
 */
#ifndef JOSTLE_LOCK_H
#define JOSTLE_LOCK_H

#include <stddef.h>
#include <stdint.h>

/* The version of this header. It changes when a function's meaning does. */
#define JOSTLE_LOCK_ABI 1

/* Exported even where the compiler is told -fvisibility=hidden. */
#if defined(__GNUC__)
#define JOSTLE_EXPORT __attribute__((visibility("default")))
#else
#define JOSTLE_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The version that the library was compiled with: return JOSTLE_LOCK_ABI.
 * jostle refuses a library of another version before anything starts.
 */
JOSTLE_EXPORT int jostle_abi(void);

/*
 * How many bytes the workers share; without this function, one page.
 *
 * args     what follows the `?` of `lib:PATH.so?ARGS`, "" where nothing does; never
 *          NULL. It is yours to read, and valid during the call.
 * workers  how many workers will join (their numbers are 0 to workers - 1).
 * keys     how many locks there are (their numbers are 0 to keys - 1).
 *
 * Pages that nobody touches cost nothing.
 */
JOSTLE_EXPORT size_t jostle_shared_bytes(const char *args, unsigned workers, unsigned keys);

/*
 * Sets up what the workers share, before any of them exists.
 *
 * shared   at least the bytes that were asked for: zeroed, aligned to a page, shared
 *          by all workers (MAP_SHARED), and at the same address in each of them, so
 *          that pointers into it hold. It belongs to jostle: do not unmap it.
 *
 * Returns 0, or a negative errno (-EINVAL for arguments that make no sense), which
 * ends the run with its message.
 */
JOSTLE_EXPORT int jostle_prepare(void *shared, const char *args, unsigned workers,
                                 unsigned keys);

/*
 * Makes one worker's handle, called once by the worker itself, in its own process
 * and thread, before anything is measured.
 *
 * Returns any pointer but NULL: it is handed back in the calls that follow, by the
 * same thread only, and belongs to you. NULL ends the run; errno says why.
 */
JOSTLE_EXPORT void *jostle_join(void *shared, unsigned worker);

/*
 * Asks for lock number `key`. This call is measured: what it does is its cost.
 *
 * is_shared    0: one owner. 1: many owners, unless one is exclusive; a lock without
 *              that returns -ENOTSUP.
 * deadline_ns  of CLOCK_MONOTONIC, in nanoseconds. 0: do not wait (a try). -1: wait
 *              for ever. A lock that cannot give up in time returns -ENOTSUP where it
 *              is positive (`--acquire-timeout`).
 * token        where a grant may leave its fencing token: a number above 0 that grows
 *              with every grant of this lock. It holds 0 at the call; leave it so if
 *              you have none.
 *
 * Returns  1       granted
 *          2       granted, and the last owner died holding it
 *          0       not granted: taken (a try), or too late (a deadline)
 *          -EINTR  a signal came. When the run is over jostle sends SIGUSR1 to those
 *                  that wait, again and again, for two seconds; then it kills them,
 *                  and the point is INVALID. Before that it calls again, with the
 *                  same deadline: a lock whose wait no signal ends may return -EINTR
 *                  every 50 ms or so, at the price of its place in the queue.
 *          other negative errno: an error, which ends the worker
 *
 * A lock is never asked for by the worker that holds it. A worker that holds several
 * (`jostle hold`) asked for them in the order of their numbers.
 */
JOSTLE_EXPORT int jostle_acquire(void *self, unsigned key, int is_shared,
                                 int64_t deadline_ns, uint64_t *token);

/*
 * Gives up lock number `key`, held in the mode `is_shared`. Measured too.
 * Returns 0, or a negative errno, which ends the worker.
 */
JOSTLE_EXPORT int jostle_release(void *self, unsigned key, int is_shared);

/*
 * The worker's end; `self` is used no more. It may still hold locks after an error.
 * A worker that was killed does not come here.
 */
JOSTLE_EXPORT void jostle_leave(void *self);

/*
 * All workers have ended. Clear away what jostle_prepare made beyond `shared`: files,
 * sockets, processes. Called by the process that called jostle_prepare.
 */
JOSTLE_EXPORT void jostle_finish(void *shared);

#ifdef __cplusplus
}
#endif

#endif
