/* A lock of memcached's `add` through libmemcached: `memcached HOST PORT cas|delete`.
 *
 * `cas` releases as jostle's target does: it compares, so that it cannot take the lock of
 * another owner. libmemcached does not speak the meta commands, so that it has to ask for
 * the id first. `delete` compares nothing, and makes two round trips as jostle does. */
#include "span.h"
#include <libmemcached/memcached.h>
#include <string.h>

static const char KEY[] = "jostle-reference:0", VALUE[] = "0123456789abcdef00000000";
enum { LEASE_S = 30 };

struct lock {
    memcached_st *client;
    int compares;
};

static void check(struct lock *lock, const char *what, memcached_return_t code) {
    if (code != MEMCACHED_SUCCESS) fail(what, memcached_strerror(lock->client, code));
}

static uint64_t id_of(struct lock *lock) {
    const char *keys[] = {KEY};
    size_t lengths[] = {sizeof KEY - 1};
    memcached_return_t code = memcached_mget(lock->client, keys, lengths, 1);
    check(lock, "gets", code);
    memcached_result_st result;
    memcached_result_create(lock->client, &result);
    if (!memcached_fetch_result(lock->client, &result, &code)) check(lock, "gets", code);
    uint64_t id = memcached_result_cas(&result);
    /* The library wants to be asked until there is no more. */
    memcached_fetch_result(lock->client, &result, &code);
    memcached_result_free(&result);
    return id;
}

static void pair(void *state) {
    struct lock *lock = state;
    size_t key = sizeof KEY - 1, value = sizeof VALUE - 1;
    check(lock, "add", memcached_add(lock->client, KEY, key, VALUE, value, LEASE_S, 0));
    if (!lock->compares) {
        check(lock, "delete", memcached_delete(lock->client, KEY, key, 0));
        return;
    }
    uint64_t id = id_of(lock);
    check(lock, "cas", memcached_cas(lock->client, KEY, key, VALUE, value, -1, 0, id));
}

int main(int count, char **words) {
    if (count != 4) fail("usage", "memcached HOST PORT cas|delete");
    struct lock lock = {memcached_create(NULL), strcmp(words[3], "cas") == 0};
    check(&lock, "server", memcached_server_add(lock.client, words[1], atoi(words[2])));
    memcached_behavior_set(lock.client, MEMCACHED_BEHAVIOR_TCP_NODELAY, 1);
    memcached_behavior_set(lock.client, MEMCACHED_BEHAVIOR_SUPPORT_CAS, 1);
    serve_spans(pair, &lock);
    memcached_free(lock.client);
}
