/* hiredis as it is: hiredis PORT MEANS. See xtask/src/clients/raw.rs. */
#include <hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static redisContext *open_to(int port)
{
    redisContext *c = redisConnect("127.0.0.1", port);
    if (!c || c->err) {
        printf("error %s\n", c ? c->errstr : "no memory");
        exit(1);
    }
    return c;
}

static long long show(const char *act, redisReply *reply)
{
    long long value = 0;
    if (!reply)
        printf("%s no reply\n", act);
    else if (reply->type == REDIS_REPLY_NIL)
        printf("%s nil\n", act);
    else if (reply->type == REDIS_REPLY_ERROR)
        printf("%s %s\n", act, reply->str);
    else if (!strcmp(act, "lock"))
        printf("lock %s\n", (value = reply->integer) > 0 ? "granted" : "no");
    else
        printf("%s %lld\n", act, value = reply->integer);
    freeReplyObject(reply);
    return value;
}

/* 10 locks in one write, with MULTI and EXEC around them or without. */
static void several(redisContext *c, const char *act, int multi)
{
    long long token[10];
    int granted = 0;
    redisReply *reply;
    if (multi)
        redisAppendCommand(c, "MULTI");
    for (int n = 0; n < 10; n++)
        redisAppendCommand(c, "LOCK %s%d TTL 60000", act, n);
    if (multi)
        redisAppendCommand(c, "EXEC");
    for (int n = 0; n < (multi ? 12 : 10); n++) {
        if (redisGetReply(c, (void **)&reply) != REDIS_OK)
            exit(1);
        if (!multi)
            token[n] = reply->integer;
        for (size_t m = 0; multi && n == 11 && m < reply->elements && m < 10; m++)
            token[m] = reply->element[m]->integer;
        freeReplyObject(reply);
    }
    for (int n = 0; n < 10; n++) {
        granted += token[n] > 0;
        freeReplyObject(redisCommand(c, "UNLOCK %s%d %lld", act, n, token[n]));
    }
    printf("%s %d\n", act, granted);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    redisContext *c = open_to(atoi(argv[1]));
    printf("version hiredis %d.%d.%d\n", HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
    long long token = show("lock", redisCommand(c, "LOCK job TTL 60000"));
    show("try", redisCommand(c, "TRYLOCK job"));
    show("wait", redisCommand(c, "LOCK job TTL 60000 WAIT 100"));
    show("wrong", redisCommand(c, "UNLOCK job %lld", token + 1));
    show("unlock", redisCommand(c, "UNLOCK job %lld", token));
    several(c, "pipeline", 0);
    several(c, "multi", 1);

    redisContext *hasty = open_to(atoi(argv[1]));
    redisSetTimeout(hasty, (struct timeval){0, 300000});
    struct timespec sent, now;
    clock_gettime(CLOCK_MONOTONIC, &sent);
    redisReply *reply = redisCommand(hasty, "LOCK busy TTL 60000 WAIT 5000");
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!strcmp(argv[2], "redisFree"))
        redisFree(hasty);
    long long ms = (now.tv_sec - sent.tv_sec) * 1000LL + (now.tv_nsec - sent.tv_nsec) / 1000000;
    printf("timeout %lld %s\n", ms, reply ? "a reply" : "an error of the context");
    while (getchar() != EOF)
        ;
    return 0;
}
