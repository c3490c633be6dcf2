/* The bare client: how many searches one process does on one connection, by
 * OpenLDAP's own library.
 *
 *     ldap URI BASE SEARCHES USERS
 *
 * Each search asks for (uid=userN), N running over the users; its answer is read
 * to the end and its entries are counted. Prints the searches that found one
 * entry, the nanoseconds they took, and the microseconds of CPU. */

#include <ldap.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static void die(const char *what, int code) {
    fprintf(stderr, "ldap: %s: %s\n", what, ldap_err2string(code));
    exit(1);
}

static uint64_t nanos(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t cpu_micros(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000u +
           (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* True if the search found exactly one entry. */
static int search(LDAP *ldap, const char *base, long user) {
    char filter[64];
    snprintf(filter, sizeof filter, "(uid=user%ld)", user);
    LDAPMessage *answer = NULL;
    int code = ldap_search_ext_s(ldap, base, LDAP_SCOPE_SUBTREE, filter, NULL, 0, NULL, NULL, NULL,
                                 LDAP_NO_LIMIT, &answer);
    if (code != LDAP_SUCCESS)
        die("search", code);
    int entries = ldap_count_entries(ldap, answer);
    ldap_msgfree(answer);
    return entries == 1;
}

int main(int count, char **arguments) {
    if (count != 5) {
        fprintf(stderr, "ldap URI BASE SEARCHES USERS\n");
        return 2;
    }
    const char *base = arguments[2];
    long searches = atol(arguments[3]), users = atol(arguments[4]);
    LDAP *ldap = NULL;
    int code = ldap_initialize(&ldap, arguments[1]);
    if (code != LDAP_SUCCESS)
        die("initialize", code);
    int version = LDAP_VERSION3;
    ldap_set_option(ldap, LDAP_OPT_PROTOCOL_VERSION, &version);
    struct berval anonymous = {0, ""};
    code = ldap_sasl_bind_s(ldap, "", LDAP_SASL_SIMPLE, &anonymous, NULL, NULL, NULL);
    if (code != LDAP_SUCCESS)
        die("bind", code);
    /* A tenth to warm up, not counted. */
    for (long n = 0; n < searches / 10; n++)
        search(ldap, base, n % users);
    uint64_t cpu = cpu_micros(), start = nanos();
    long found = 0;
    for (long n = 0; n < searches; n++)
        found += search(ldap, base, n % users);
    uint64_t took = nanos() - start;
    cpu = cpu_micros() - cpu;
    ldap_unbind_ext_s(ldap, NULL, NULL);
    printf("%ld %llu %llu\n", found, (unsigned long long)took, (unsigned long long)cpu);
    return found == searches ? 0 : 1;
}
