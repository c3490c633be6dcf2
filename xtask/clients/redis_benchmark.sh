#!/bin/sh
# redis-benchmark as it is: redis_benchmark.sh PORT MEANS. See xtask/src/clients/raw.rs.
# It shows no replies, and -P is a pipeline.
set -eu
port=$1
echo "version $(redis-benchmark --version)"
redis-benchmark -p "$port" -n 2000 -c 10 -P 16 -r 100000 --csv \
    LOCK key:__rand_int__ TTL 100 WAIT 0 | grep -q '^"LOCK' && echo "pipeline 10"
timeout 0.3 redis-benchmark -p "$port" -n 1 -c 1 LOCK busy TTL 60000 WAIT 5000 >/dev/null || true
echo "timeout 300 ended by timeout(1)"
cat >/dev/null
