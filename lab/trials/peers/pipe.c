/* The lines of `pipe:` through two pipes, without measuring anything: what
 * jostle's own way to a user's lock is held against.
 *
 * pipe answer: answers every request at once.
 * pipe ask PAIRS: starts itself as the one that answers, acquires and releases so
 * many times, and prints the pairs and the nanoseconds that they took. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what)
{
	fprintf(stderr, "pipe: %s: %s\n", what, strerror(errno));
	exit(1);
}

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int answer(void)
{
	char line[256];
	ssize_t count;
	while ((count = read(0, line, sizeof line)) > 0) {
		const char *text = line[0] == 'A' ? "G\n" : line[0] == 'U' ? "K\n" : "READY\n";
		if (write(1, text, strlen(text)) < 0)
			fail("write");
	}
	return count < 0;
}

static void ask(int to, int from, const char *request, const char *expected)
{
	char line[256];
	if (write(to, request, strlen(request)) < 0)
		fail("write");
	ssize_t count = read(from, line, sizeof line);
	if (count < 0)
		fail("read");
	if ((size_t)count != strlen(expected) || memcmp(line, expected, count) != 0) {
		fprintf(stderr, "pipe: another answer than %s", expected);
		exit(1);
	}
}

static long long pairs(int to, int from, long count)
{
	long long begin = now();
	for (long i = 0; i < count; i++) {
		ask(to, from, "A 0 x -1\n", "G\n");
		ask(to, from, "U 0\n", "K\n");
	}
	return now() - begin;
}

int main(int count, char **words)
{
	if (count > 1 && strcmp(words[1], "answer") == 0)
		return answer();
	if (count < 3) {
		fprintf(stderr, "usage: pipe answer | pipe ask PAIRS\n");
		return 2;
	}
	long many = atol(words[2]);
	int there[2], back[2];
	if (pipe(there) != 0 || pipe(back) != 0)
		fail("pipe");
	pid_t child = fork();
	if (child < 0)
		fail("fork");
	if (child == 0) {
		if (dup2(there[0], 0) < 0 || dup2(back[1], 1) < 0)
			fail("dup2");
		close(there[0]);
		close(there[1]);
		close(back[0]);
		close(back[1]);
		execl("/proc/self/exe", "pipe", "answer", (char *)NULL);
		fail("execl");
	}
	close(there[0]);
	close(back[1]);
	ask(there[1], back[0], "HELLO jostle/1 0 1\n", "READY\n");
	pairs(there[1], back[0], many / 10);
	long long took = pairs(there[1], back[0], many);
	printf("%ld %lld\n", many, took);
	close(there[1]);
	waitpid(child, NULL, 0);
	return 0;
}
