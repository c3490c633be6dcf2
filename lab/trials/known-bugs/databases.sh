# For setups, as root: servers below $PLACE, which end with the trial.
#
# postgres PORT        a new PostgreSQL, whose superuser postgres needs no password
# bouncer PORT BEHIND  PgBouncer before it, in transaction mode, with two sessions of the server's

tried() {
    for _ in $(seq 100); do
        "$@" >"$PLACE/tried" 2>&1 && return
        sleep 0.1
    done
    cat "$PLACE/tried" >&2
    return 1
}
by="setpriv --reuid=postgres --regid=postgres --clear-groups"

postgres() {
    local bin
    bin=$(echo /usr/lib/postgresql/*/bin)
    chmod 755 "$PLACE"
    mkdir "$PLACE/pg"
    chown postgres "$PLACE/pg"
    (cd "$PLACE/pg" && $by "$bin/initdb" -D data -A trust -U postgres --no-sync >/dev/null)
    (cd "$PLACE/pg" && exec $by "$bin/postgres" -D data -c listen_addresses=127.0.0.1 -c port="$1" \
        -c unix_socket_directories="$PLACE/pg" -c dynamic_shared_memory_type=mmap -c fsync=off \
        >log 2>&1) &
    tried psql -h 127.0.0.1 -p "$1" -U postgres -c 'select 1'
}

bouncer() {
    cat >"$PLACE/bouncer.ini" <<END
[databases]
postgres = host=127.0.0.1 port=$2 user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $1
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
ignore_startup_parameters = extra_float_digits
logfile = $PLACE/pg/pgbouncer.log
END
    (cd "$PLACE/pg" && exec $by pgbouncer "$PLACE/bouncer.ini" >/dev/null 2>&1) &
    tried psql -h 127.0.0.1 -p "$1" -U postgres -c 'select 1'
}
