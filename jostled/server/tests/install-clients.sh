#!/bin/sh
# Installs what the tests of jostled run against it, beside the toolchain and the Debian
# packages of lab/testbed/src/packages.rs: two versions of redis-py, each in its own
# environment under target/redis-py, or $JOSTLE_REDIS_PY.
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
place=${JOSTLE_REDIS_PY:-$root/target/redis-py}
for version in 8 4; do
    [ -x "$place/$version/bin/python" ] || python3 -m venv "$place/$version"
    "$place/$version/bin/python" -m pip install --quiet --disable-pip-version-check \
        "redis>=$version,<$((version + 1))"
    "$place/$version/bin/python" -c 'import redis; print("redis-py", redis.__version__)'
done
