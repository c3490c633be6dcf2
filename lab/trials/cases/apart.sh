#!/bin/sh
# Installs the generators, and runs a command with them in its PATH, in a network namespace of its
# own, whose ports and counters nobody else uses.
set -eu
cases=$(cd "$(dirname "$0")" && pwd)
"$cases/install.sh"
place=$(cd "$cases/../../../target/generators" && pwd)
PATH=$place/bin:$place/node_modules/.bin:$place/python/bin:$PATH:/usr/sbin
exec unshare --net sh -c 'ip link set lo up && exec "$@"' sh "$@"
