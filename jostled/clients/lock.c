/*
 * Takes a lock with a lease, renews it, and releases it by its token.
 *
 *   cc -o lock lock.c $(pkg-config --cflags --libs hiredis)
 *   ./lock 127.0.0.1 2626 job
 */
#include <hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void fail(const char *what, redisContext *c, redisReply *reply)
{
    fprintf(stderr, "%s: %s\n", what,
            reply && reply->type == REDIS_REPLY_ERROR ? reply->str
            : c && c->err                            ? c->errstr
                                                     : "unexpected reply");
    exit(1);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: %s HOST PORT NAME\n", argv[0]);
        return 2;
    }
    const char *name = argv[3];
    redisContext *c = redisConnect(argv[1], atoi(argv[2]));
    if (!c || c->err)
        fail("connect", c, NULL);

    /* Ours for 10 s at most; wait for it for at most 5 s. */
    redisReply *reply = redisCommand(c, "LOCK %s TTL 10000 WAIT 5000", name);
    if (reply && reply->type == REDIS_REPLY_NIL) {
        fprintf(stderr, "somebody else has had %s for 5 s\n", name);
        return 1;
    }
    if (!reply || reply->type != REDIS_REPLY_INTEGER)
        fail("LOCK", c, reply);
    long long token = reply->integer;
    freeReplyObject(reply);
    printf("holding %s with token %lld\n", name, token);

    /* ... the work: hand the token to whatever it writes to, which refuses a
     * token that is smaller than the largest it has seen ... */
    usleep(10000);

    /* It takes longer: 10 s from now. NOTOWNER means that the lease has run
     * out: stop working. */
    reply = redisCommand(c, "RENEW %s %lld TTL 10000", name, token);
    if (!reply || reply->type != REDIS_REPLY_INTEGER)
        fail("RENEW", c, reply);
    freeReplyObject(reply);
    printf("renewed\n");

    reply = redisCommand(c, "UNLOCK %s %lld", name, token);
    if (!reply || reply->type != REDIS_REPLY_INTEGER)
        fail("UNLOCK", c, reply);
    freeReplyObject(reply);
    printf("released\n");
    redisFree(c);
    return 0;
}
