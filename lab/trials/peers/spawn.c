/* Starts a program again and again and waits for its end, without measuring
 * anything: what `jostle call` is held against.
 *
 * spawn posix_spawn|fork CALLS PROGRAM MIB: with so many MiB of touched memory;
 * prints the calls and the nanoseconds that they took. */

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static void fail(const char *what)
{
	fprintf(stderr, "spawn: %s: %s\n", what, strerror(errno));
	exit(1);
}

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static pid_t by_fork(const char *program, char **arguments)
{
	pid_t pid = fork();
	if (pid == 0) {
		execve(program, arguments, environ);
		_exit(127);
	}
	return pid;
}

static pid_t by_posix_spawn(const char *program, char **arguments)
{
	pid_t pid;
	int error = posix_spawn(&pid, program, NULL, NULL, arguments, environ);
	if (error != 0) {
		errno = error;
		return -1;
	}
	return pid;
}

int main(int count, char **words)
{
	if (count < 5) {
		fprintf(stderr, "usage: spawn posix_spawn|fork CALLS PROGRAM MIB\n");
		return 2;
	}
	int forks = strcmp(words[1], "fork") == 0;
	long calls = atol(words[2]);
	char *program = words[3];
	size_t bytes = (size_t)atol(words[4]) << 20;
	if (bytes > 0) {
		char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (memory == MAP_FAILED)
			fail("mmap");
		/* Small pages, as most programs have them. */
		madvise(memory, bytes, MADV_NOHUGEPAGE);
		memset(memory, 1, bytes);
	}
	char *arguments[] = { program, NULL };
	long long start = now();
	for (long nth = 0; nth < calls; nth++) {
		int status;
		pid_t pid = forks ? by_fork(program, arguments)
				  : by_posix_spawn(program, arguments);
		if (pid < 0)
			fail(words[1]);
		if (waitpid(pid, &status, 0) != pid)
			fail("waitpid");
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
			fprintf(stderr, "spawn: %s ended badly\n", program);
			return 1;
		}
	}
	printf("%ld %lld\n", calls, now() - start);
	return 0;
}
