/* MariaDB's GET_LOCK and RELEASE_LOCK through libmariadb, as text: `mariadb HOST PORT USER`. */
#include "span.h"
#include <mysql.h>
#include <string.h>

/* Asks; the answer has to be 1. */
static void ask(MYSQL *client, const char *query) {
    if (mysql_real_query(client, query, strlen(query))) fail(query, mysql_error(client));
    MYSQL_RES *result = mysql_store_result(client);
    if (!result) fail(query, mysql_error(client));
    MYSQL_ROW row = mysql_fetch_row(result);
    if (!row || !row[0] || strcmp(row[0], "1") != 0) fail(query, "the answer is not 1");
    mysql_free_result(result);
}

static void pair(void *client) {
    ask(client, "SELECT GET_LOCK('jostle-reference:0', 1000)");
    ask(client, "SELECT RELEASE_LOCK('jostle-reference:0')");
}

int main(int count, char **words) {
    if (count != 4) fail("usage", "mariadb HOST PORT USER");
    MYSQL *client = mysql_init(NULL);
    if (!mysql_real_connect(client, words[1], words[3], "", NULL, atoi(words[2]), NULL, 0))
        fail("connect", mysql_error(client));
    serve_spans(pair, client);
    mysql_close(client);
}
