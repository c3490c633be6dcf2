#!/bin/sh
# Runs a command on one of the hosts, in this directory: exec HOST COMMAND...
# It is terminated when the process that it becomes here is killed.
host=$1
shift
while read -r name pid namespace address shift_ns group <&3; do
    [ "$name" = "$host" ] || continue
    # One that has ended and is but waited for has no host name any more.
    if [ "$(readlink "/proc/$pid/ns/pid")" != "$namespace" ] ||
        ! readlink "/proc/$pid/ns/uts" >/dev/null; then
        echo "exec: $host has ended" >&2
        exit 125
    fi
    [ "$group" = - ] || echo 0 >"$group/all/cgroup.procs"
    TMPDIR=DIRECTORY/tmp/$host
    export TMPDIR
    exec nsenter --target "$pid" --net --uts --ipc --pid --mount --time \
        setpriv --pdeathsig TERM sh -c 'cd "$0" && exec "$@"' "$PWD" "$@" 3<&-
done 3<DIRECTORY/hosts
echo "exec: there is no host $host" >&2
exit 125
