/*
 * The mutex of tool/own-locks/examples/futex.c whose owner then does STEPS steps, each of which
 * waits for the one before. What a lock does while it is taken keeps its next owner waiting,
 * so that a tenth more steps is a lock that is slower by a tenth, alone and contended.
 * For `cargo xtask validate gate`, and for tests of tool/ci-gate/.
 *
 *     cc -O2 -shared -fPIC -I tool/own-locks -DSTEPS=110 -o slower.so lab/trials/validate/gate.c
 */
#include "jostle_lock.h"

/* The header comes first, so that the name of the exported function stays as it is. */
#define jostle_acquire plain_acquire
#include "examples/futex.c"
#undef jostle_acquire

#ifndef STEPS
#define STEPS 100
#endif

int jostle_acquire(void *self, unsigned key, int is_shared, int64_t deadline_ns,
                   uint64_t *token)
{
    int got = plain_acquire(self, key, is_shared, deadline_ns, token);
    unsigned long sum = 1;
    for (int step = 0; got == 1 && step < STEPS; step++) {
        sum = sum * 3 + 1;
        /* The compiler must believe that somebody reads it. */
        __asm__ volatile("" : "+r"(sum));
    }
    return got;
}
