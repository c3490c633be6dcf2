/* A lock of Redis's SET NX PX through hiredis, released by a script that compares:
 * `redis HOST PORT`. */
#include "span.h"
#include <hiredis/hiredis.h>

#define KEY "jostle-reference:0"
#define VALUE "0123456789abcdef00000000"

static char script[41];

static redisReply *answer(redisContext *client, const char *what, redisReply *reply) {
    if (!reply) fail(what, client->errstr);
    if (reply->type == REDIS_REPLY_ERROR) fail(what, reply->str);
    return reply;
}

static void pair(void *state) {
    redisContext *client = state;
    redisReply *reply = redisCommand(client, "SET " KEY " " VALUE " NX PX 30000");
    if (answer(client, "SET", reply)->type != REDIS_REPLY_STATUS) fail("SET", "not granted");
    freeReplyObject(reply);
    reply = redisCommand(client, "EVALSHA %s 1 " KEY " " VALUE, script);
    if (answer(client, "EVALSHA", reply)->integer != 1) fail("EVALSHA", "not the owner");
    freeReplyObject(reply);
}

int main(int count, char **words) {
    if (count != 3) fail("usage", "redis HOST PORT");
    redisContext *client = redisConnect(words[1], atoi(words[2]));
    if (!client || client->err) fail("connect", client ? client->errstr : "no memory");
    redisReply *reply = redisCommand(client, "SCRIPT LOAD %s",
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end "
        "return 0");
    snprintf(script, sizeof script, "%s", answer(client, "SCRIPT LOAD", reply)->str);
    freeReplyObject(reply);
    serve_spans(pair, client);
    redisFree(client);
}
