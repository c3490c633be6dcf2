/* The bare contention: forked workers acquire, hold, release, idle; nothing is
 * stamped or checked but the wait.
 *
 *     contend KIND WORKERS HOLD_US IDLE_US WARMUP_MS WINDOW_MS DIRECTORY
 *
 * Prints one JSON object: times to start and to stop all workers, how far apart
 * they arrived at the common start, and how the acquisitions within the window
 * were shared out. Waits that the end of the window cuts off count up to it. */

#include "lock.h"
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

struct worker {
    _Alignas(128) uint64_t arrived;
    uint64_t operations;
    uint64_t longest_wait;
};

/* The common start, and the end. */
struct gate {
    _Alignas(128) _Atomic uint32_t ready;
    _Alignas(128) _Atomic uint32_t open;
    uint64_t from;
    uint64_t to;
    _Alignas(128) _Atomic uint32_t stopped;
};

static void note(int number) { (void)number; }

static void pass(uint64_t span) {
    if (span == 0)
        return;
    struct timespec t = {(time_t)(span / 1000000000u), (long)(span % 1000000000u)};
    nanosleep(&t, NULL);
}

static void wait_for_start(struct gate *gate) {
    atomic_fetch_add(&gate->ready, 1);
    while (atomic_load(&gate->open) == 0)
        syscall(SYS_futex, &gate->open, FUTEX_WAIT, 0, NULL);
}

/* The wait that the end of the window cut off, or nothing if it ended before. */
static void count_wait(struct worker *me, uint64_t from, uint64_t to) {
    if (to > from && to - from > me->longest_wait)
        me->longest_wait = to - from;
}

static void work(struct lock *lock, struct gate *gate, struct worker *me, uint64_t hold,
                 uint64_t idle) {
    while (!atomic_load_explicit(&gate->stopped, memory_order_relaxed)) {
        uint64_t asked = nanos();
        if (acquire(lock, lock->kind) != 0) {
            if (errno != EINTR)
                die("acquire");
            count_wait(me, asked, gate->to);
            continue;
        }
        uint64_t granted = nanos();
        if (granted >= gate->from && granted < gate->to) {
            me->operations++;
            count_wait(me, asked, granted);
        } else if (granted >= gate->to && asked < gate->to) {
            count_wait(me, asked, gate->to);
        }
        pass(hold);
        if (release(lock, lock->kind) != 0)
            die("release");
        pass(idle);
    }
}

static void print(const struct worker *workers, long count, double ramp, double drain) {
    uint64_t first = UINT64_MAX, last = 0, min = UINT64_MAX, max = 0, none = 0, all = 0,
             longest = 0;
    double squares = 0;
    for (long i = 0; i < count; i++) {
        const struct worker *w = &workers[i];
        first = w->arrived < first ? w->arrived : first;
        last = w->arrived > last ? w->arrived : last;
        min = w->operations < min ? w->operations : min;
        max = w->operations > max ? w->operations : max;
        longest = w->longest_wait > longest ? w->longest_wait : longest;
        none += w->operations == 0;
        all += w->operations;
        squares += (double)w->operations * (double)w->operations;
    }
    double mean = (double)all / (double)count;
    double variance = count > 1 ? (squares - mean * (double)all) / (double)(count - 1) : 0;
    printf("{\"ramp_s\":%.6f,\"drain_s\":%.6f,\"start_spread_ns\":%llu,\"operations\":%llu,"
           "\"min\":%llu,\"max\":%llu,\"none\":%llu,\"dispersion\":%.4f,"
           "\"longest_wait_ns\":%llu}\n",
           ramp, drain, (unsigned long long)(last - first), (unsigned long long)all,
           (unsigned long long)min, (unsigned long long)max, (unsigned long long)none,
           mean > 0 ? variance / mean : 0, (unsigned long long)longest);
}

int main(int count, char **arguments) {
    if (count != 8) {
        fprintf(stderr,
                "contend KIND WORKERS HOLD_US IDLE_US WARMUP_MS WINDOW_MS DIRECTORY\n");
        return 2;
    }
    long workers = atol(arguments[2]);
    uint64_t hold = (uint64_t)atoll(arguments[3]) * 1000, idle = (uint64_t)atoll(arguments[4]) * 1000;
    uint64_t warmup = (uint64_t)atoll(arguments[5]) * 1000000u;
    uint64_t window = (uint64_t)atoll(arguments[6]) * 1000000u;
    struct lock lock;
    lock_prepare(&lock, kind_named(arguments[1]), arguments[7]);
    struct gate *gate = shared_memory(sizeof *gate);
    struct worker *all = shared_memory((size_t)workers * sizeof *all);
    pid_t *pids = calloc((size_t)workers, sizeof *pids);
    /* No SA_RESTART: the signal ends waits. */
    struct sigaction end_waits = {.sa_handler = note};
    sigaction(SIGUSR1, &end_waits, NULL);
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);

    uint64_t start = nanos();
    for (long i = 0; i < workers; i++) {
        pids[i] = fork();
        if (pids[i] < 0) {
            perror("fork");
            while (i-- > 0)
                kill(pids[i], SIGKILL);
            lock_remove(&lock);
            return 1;
        }
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
            lock_join(&lock);
            wait_for_start(gate);
            all[i].arrived = nanos();
            work(&lock, gate, &all[i], hold, idle);
            _exit(0);
        }
    }
    while (atomic_load(&gate->ready) < (uint32_t)workers)
        usleep(200);
    double ramp = (double)(nanos() - start) / 1e9;

    gate->from = nanos() + warmup;
    gate->to = gate->from + window;
    atomic_store(&gate->open, 1);
    syscall(SYS_futex, &gate->open, FUTEX_WAKE, INT_MAX);
    pass(gate->to - nanos());

    start = nanos();
    atomic_store(&gate->stopped, 1);
    /* A signal that comes just before a worker sleeps is lost on it: repeat. */
    int failed = 0;
    for (long left = workers; left > 0;) {
        for (long i = 0; i < workers; i++)
            if (pids[i] > 0)
                kill(pids[i], SIGUSR1);
        int status;
        pid_t ended;
        uint64_t again = nanos() + 20000000u;
        while (left > 0 && nanos() < again) {
            ended = waitpid(-1, &status, WNOHANG);
            if (ended <= 0) {
                usleep(200);
                continue;
            }
            left--;
            failed += status != 0;
            for (long i = 0; i < workers; i++)
                if (pids[i] == ended)
                    pids[i] = 0;
        }
    }
    double drain = (double)(nanos() - start) / 1e9;
    lock_remove(&lock);
    print(all, workers, ramp, drain);
    return failed != 0;
}
