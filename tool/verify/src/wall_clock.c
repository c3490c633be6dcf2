/* A wall clock that jostle sets: the nanoseconds in the file $JOSTLE_CLOCK are added to what the
 * system's says. Preloaded into a server (LD_PRELOAD). It calls no malloc: a server's own may not
 * be set up yet. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long none, *offset_ns = &none;

/* Eight bytes, written while the server runs. */
__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("JOSTLE_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        abort();
    void *place = mmap(NULL, sizeof *offset_ns, PROT_READ, MAP_SHARED, file, 0);
    if (place == MAP_FAILED)
        abort();
    offset_ns = place;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        long long ns = *offset_ns + now->tv_nsec;
        long long seconds = ns / 1000000000 - (ns % 1000000000 < 0);
        now->tv_sec += seconds;
        now->tv_nsec = ns - seconds * 1000000000;
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact))
        return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *place) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    if (place)
        *place = now.tv_sec;
    return now.tv_sec;
}
