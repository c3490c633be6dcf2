#!/bin/sh
# Installs what the tests of jostled run against it, beside the toolchain:
# Debian packages (as root) and two versions of redis-py, each in its own
# environment under target/redis-py, or $JOSTLE_REDIS_PY.
set -eu
packages="redis-tools libhiredis-dev gcc pkg-config openssl python3-venv iproute2 util-linux"
missing=""
for package in $packages; do
    dpkg -s "$package" >/dev/null 2>&1 || missing="$missing $package"
done
if [ -n "$missing" ]; then
    apt-get install -y --no-install-recommends $missing
fi
root=$(cd "$(dirname "$0")/../../.." && pwd)
place=${JOSTLE_REDIS_PY:-$root/target/redis-py}
for version in 8 4; do
    [ -x "$place/$version/bin/python" ] || python3 -m venv "$place/$version"
    "$place/$version/bin/python" -m pip install --quiet --disable-pip-version-check \
        "redis>=$version,<$((version + 1))"
    "$place/$version/bin/python" -c 'import redis; print("redis-py", redis.__version__)'
done
