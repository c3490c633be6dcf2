/* The loop of a reference client of `cargo xtask peers --clients`: for each line
 * "MILLISECONDS" on standard input it takes and releases its lock for so long, one pair
 * after the other, and prints "PAIRS CPU_NS NS". It ends with its input. */
#ifndef SPAN_H
#define SPAN_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int64_t now_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Ends the program: what failed, and what the library said. */
static void fail(const char *what, const char *said) {
    fprintf(stderr, "%s: %s\n", what, said);
    exit(1);
}

/* pair(state) makes one pair, and ends the program if it fails. */
static void serve_spans(void (*pair)(void *), void *state) {
    long milliseconds;
    while (scanf("%ld", &milliseconds) == 1) {
        int64_t cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
        int64_t begin = now_ns(CLOCK_MONOTONIC), end = begin, pairs = 0;
        while (end - begin < milliseconds * INT64_C(1000000)) {
            pair(state);
            pairs++;
            end = now_ns(CLOCK_MONOTONIC);
        }
        cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        printf("%lld %lld %lld\n", (long long)pairs, (long long)cpu, (long long)(end - begin));
        fflush(stdout);
    }
}

#endif
