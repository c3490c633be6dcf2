/* A wall clock that a test sets: the seconds in the file $CLOCK_OFFSET are added to what
 * the system's says. Preloaded into a server (LD_PRELOAD). libfaketime does the same and
 * more, but calls malloc while redis-server's own is not set up yet. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long none, *offset_s = &none;

/* The file is a number of eight bytes, written by the test while the server runs. */
__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("CLOCK_OFFSET");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        abort();
    void *place = mmap(NULL, sizeof *offset_s, PROT_READ, MAP_SHARED, file, 0);
    if (place == MAP_FAILED)
        abort();
    offset_s = place;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int failed = (int)syscall(SYS_clock_gettime, clock, time);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        time->tv_sec += *offset_s;
    return failed;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}
