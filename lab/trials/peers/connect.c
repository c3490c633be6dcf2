/* Opens N TCP connections on loopback and closes them again: the same system
 * calls in as many processes as jostle makes of them, and nothing measured but
 * the whole.
 *
 *   connect N SOURCES PORTS EACH
 *
 * EACH is how many connections a process carries. Clients run on the first CPU
 * and servers on the second, as jostle places them. Prints one line of JSON: the
 * time from the first socket() to the last connect(), until the last connection
 * is accepted, and from the first close() to the last.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif

enum { BACKLOG = 4096 };

static struct shared {
	_Alignas(128) atomic_ulong opened;
	_Alignas(128) atomic_ulong accepted;
	_Alignas(128) atomic_ulong connected_ns; /* when the last connect() was done */
	_Alignas(128) atomic_int server_turn;
	_Alignas(128) atomic_int turn; /* clients, then clients closing, then servers closing */
	_Alignas(128) atomic_int finished;
} *shared;

static long total, sources, ports, each;
static int clients, servers;
static int listening[1024];
static struct sockaddr_in destination[1024];

static void die(const char *call)
{
	fprintf(stderr, "%s: %s\n", call, strerror(errno));
	_exit(1);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void pin(int cpu)
{
	cpu_set_t set;
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		return;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof set, &set))
		die("sched_setaffinity");
}

static void await(atomic_int *word, int value)
{
	int seen;
	while ((seen = atomic_load(word)) < value)
		syscall(SYS_futex, word, FUTEX_WAIT, seen, NULL, NULL, 0);
}

static void reach(atomic_int *word, int value)
{
	atomic_store(word, value);
	syscall(SYS_futex, word, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

static void make_listeners(void)
{
	int port = 10000 + getpid() % 20000;
	for (long n = 0; n < ports; n++) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		struct sockaddr_in at = { .sin_family = AF_INET };
		at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		do {
			at.sin_port = htons(port++);
		} while (bind(fd, (struct sockaddr *)&at, sizeof at) && errno == EADDRINUSE);
		if (listen(fd, BACKLOG))
			die("listen");
		listening[n] = fd;
		destination[n] = at;
	}
}

static int one_connection(long nth)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		die("socket");
	if (sources > 1) {
		struct sockaddr_in from = { .sin_family = AF_INET };
		int one = 1;
		/* Other addresses than the last runs', whose ports rest. */
		from.sin_addr.s_addr = htonl(0x7f010000 + (getppid() % 4096) * 1024 + nth % sources);
		if (setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one))
			die("setsockopt");
		if (bind(fd, (struct sockaddr *)&from, sizeof from))
			die("bind");
	}
	struct sockaddr_in *to = &destination[nth / sources % ports];
	if (connect(fd, (struct sockaddr *)to, sizeof *to))
		die("connect");
	struct sockaddr_in name;
	socklen_t length = sizeof name;
	if (getsockname(fd, (struct sockaddr *)&name, &length))
		die("getsockname");
	return fd;
}

static void client(int number)
{
	int *fds = malloc(each * sizeof *fds);
	long count = 0;
	pin(0);
	await(&shared->turn, number);
	for (long nth = atomic_load(&shared->opened); nth < total && count < each; nth++) {
		while (nth >= (long)(atomic_load_explicit(&shared->accepted, memory_order_relaxed) + BACKLOG))
			usleep(100);
		fds[count++] = one_connection(nth);
		atomic_store(&shared->opened, nth + 1);
	}
	if (atomic_load(&shared->opened) == (unsigned long)total)
		atomic_store(&shared->connected_ns, (unsigned long)(now() * 1e9));
	if (number + 1 < clients)
		reach(&shared->turn, number + 1);
	await(&shared->turn, clients + number);
	for (long n = 0; n < count; n++)
		close(fds[n]);
	reach(&shared->turn, clients + number + 1);
	_exit(0);
}

static void server(int number)
{
	int *fds = malloc(each * sizeof *fds);
	long count = 0;
	pin(1);
	await(&shared->server_turn, number);
	if (atomic_load(&shared->accepted) < (unsigned long)total) {
		int watch = epoll_create1(EPOLL_CLOEXEC);
		struct epoll_event events[1024];
		for (long n = 0; n < ports; n++) {
			struct epoll_event event = { .events = EPOLLIN, .data.u64 = n };
			epoll_ctl(watch, EPOLL_CTL_ADD, listening[n], &event);
		}
		while (count < each && atomic_load(&shared->accepted) < (unsigned long)total) {
			int ready = epoll_wait(watch, events, ports, 10);
			for (int n = 0; n < ready; n++)
				while (count < each) {
					int fd = accept4(listening[events[n].data.u64], NULL, NULL, SOCK_CLOEXEC);
					if (fd < 0 && errno == EAGAIN)
						break;
					if (fd < 0)
						die("accept4");
					fds[count++] = fd;
					if (atomic_fetch_add(&shared->accepted, 1) + 1 == (unsigned long)total)
						reach(&shared->finished, 1);
				}
		}
		close(watch);
	}
	reach(&shared->server_turn, number + 1);
	await(&shared->turn, 2 * clients + number);
	for (long n = 0; n < count; n++)
		close(fds[n]);
	reach(&shared->turn, 2 * clients + number + 1);
	_exit(0);
}

static void fork_all(int count, void (*life)(int))
{
	for (int number = 0; number < count; number++) {
		pid_t pid = fork();
		if (pid < 0)
			die("fork");
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			life(number);
		}
	}
}

int main(int argc, char **argv)
{
	if (argc < 5) {
		fprintf(stderr, "usage: connect N SOURCES PORTS EACH\n");
		return 2;
	}
	total = atol(argv[1]);
	sources = atol(argv[2]);
	ports = atol(argv[3]);
	each = atol(argv[4]);
	clients = (total + each - 1) / each;
	servers = clients + 1;
	struct rlimit limit;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	atomic_store(&shared->turn, -1);
	make_listeners();
	fork_all(servers, server);
	fork_all(clients, client);
	usleep(100000);
	double began = now();
	reach(&shared->turn, 0);
	await(&shared->finished, 1);
	double opened = now();
	reach(&shared->turn, clients);
	int bad = 0, status;
	while (wait(&status) > 0)
		bad |= status;
	printf("{\"connect_s\":%.6f,\"accept_s\":%.6f,\"close_s\":%.6f}\n",
	       atomic_load(&shared->connected_ns) / 1e9 - began, opened - began, now() - opened);
	return bad != 0;
}
