#!/bin/sh
# redis-cli as it is: redis_cli.sh PORT MEANS. See xtask/src/clients/raw.rs.
set -eu
port=$1
cli() { redis-cli -p "$port" "$@"; }
or_nil() { [ -n "$1" ] && echo "$1" || echo nil; }
echo "version $(redis-cli --version)"
token=$(cli LOCK job TTL 60000)
[ "$token" -gt 0 ] && echo "lock granted"
echo "try $(or_nil "$(cli TRYLOCK job)")"
echo "wait $(or_nil "$(cli LOCK job TTL 60000 WAIT 100)")"
echo "wrong $(cli UNLOCK job $((token + 1)) || true)"
echo "unlock $(cli UNLOCK job "$token")"
# Its standard input is a pipeline of one command after the other; --pipe is not, it wants no replies.
locks=$(for n in 0 1 2 3 4 5 6 7 8 9; do echo "LOCK pipeline$n TTL 60000"; done)
echo "pipeline $(echo "$locks" | cli | grep -c '^[1-9]')"
locks=$(for n in 0 1 2 3 4 5 6 7 8 9; do echo "LOCK multi$n TTL 60000"; done)
echo "multi $(printf 'MULTI\n%s\nEXEC\n' "$locks" | cli | grep -c '^[1-9]')"
for act in pipeline multi; do
    for n in 0 1 2 3 4 5 6 7 8 9; do cli FORCEUNLOCK "$act$n" >/dev/null; done
done
timeout 0.3 redis-cli -p "$port" LOCK busy TTL 60000 WAIT 5000 || true
echo "timeout 300 ended by timeout(1)"
cat >/dev/null
