/* A load generator of one thread with epoll: client-c PORT CONNECTIONS SECONDS. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char request[] = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int count, char **words) {
    if (count < 4) return 2;
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
    const char *host = getenv("CASE_HOST");
    place.sin_addr.s_addr = inet_addr(host ? host : "127.0.0.1");
    int events = epoll_create1(0);
    for (int nth = 0; nth < atoi(words[2]); nth++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&place, sizeof place)) return perror("connect"), 1;
        struct epoll_event wanted = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(events, EPOLL_CTL_ADD, fd, &wanted);
        if (write(fd, request, sizeof request - 1) < 0) return perror("write"), 1;
    }
    long done = 0;
    for (double end = now() + atof(words[3]); now() < end;) {
        struct epoll_event ready[64];
        int all = epoll_wait(events, ready, 64, 100);
        for (int nth = 0; nth < all; nth++) {
            char answer[4096];
            int fd = ready[nth].data.fd;
            if (read(fd, answer, sizeof answer) <= 0) {
                close(fd);
            } else if (++done, write(fd, request, sizeof request - 1) < 0) {
                close(fd);
            }
        }
    }
    printf("%ld requests\n", done);
}
