# Read by bash before the lines of a situation. It runs in namespaces of its own for network, mounts
# and IPC, so that ports, addresses and firewalls are nobody else's. In DIR it may write; ROOT is the
# repository, JOSTLE the program.
set -eu
export PYTHONPATH=$ROOT/tool/own-locks/pipe/python:$ROOT/lab/trials/situations
export PYTHONDONTWRITEBYTECODE=1
PATH=$PATH:/usr/sbin:/sbin
cd "$DIR"
chmod 755 .
ip link set lo up

# Whatever happens: puts back what is outside of the namespaces, and ends all that began here.
end() {
    trap '' TERM INT
    trap - EXIT
    set +e
    after
    exec 2>/dev/null
    local place
    for _ in 1 2; do
        for place in $(find -L /proc/[0-9]*/ns/mnt -samefile /proc/self/ns/mnt); do
            place=${place#/proc/}
            [ "${place%%/*}" = $$ ] || kill -KILL "${place%%/*}"
        done
        wait
    done
    # A control group is only removed when its processes are.
    [ -z "${GROUP-}" ] || rmdir "$GROUP"
    [ -z "${ABANDONED-}" ] || rm -rf "$DIR"
}
trap end EXIT
trap 'ABANDONED=1; exit 143' TERM INT

# Tries a command for ten seconds.
until_ok() {
    for _ in {1..100}; do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    echo "in vain: $*" >&2
    return 1
}
accepts() { until_ok bash -c ": </dev/tcp/$1/$2"; }
jostle() { timeout --foreground -s INT -k 5 45 "$JOSTLE" "$@" --overwrite -o "$DIR/result.jsonl"; }

# A host of that name at 10.9.0.N behind a switch; this one is 10.9.0.1.
host() {
    [ -e /sys/class/net/br0 ] || ip link show br0 >/dev/null 2>&1 || {
        mkdir -p /run/netns
        mount -t tmpfs none /run/netns
        ip link add br0 type bridge
        ip addr add 10.9.0.1/24 dev br0
        ip link set br0 up
    }
    ip netns add "$1"
    ip link add "v$1" type veth peer name eth0 netns "$1"
    ip link set "v$1" master br0 up
    on "$1" ip link set lo up
    on "$1" ip addr add "10.9.0.$2/24" dev eth0
    on "$1" ip link set eth0 up
}
on() { local host=$1; shift; nsenter "--net=/run/netns/$host" "$@"; }

# Servers: each leaves its process in SERVER. AT is the address, and WHERE has the words that begin a
# command on another host; `on` would be a process more.
AT=127.0.0.1
WHERE=
place() { WHERE="nsenter --net=/run/netns/$1" AT=$2; }
redis() {
    local port=$1
    shift
    $WHERE redis-server --port "$port" --bind "$AT" --protected-mode no --save '' \
        --dir "$DIR" --logfile "$DIR/redis-$port.log" --dbfilename "$port.rdb" "$@" &
    SERVER=$!
    until_ok $WHERE redis-cli -h "$AT" -p "$port" info
}
cli() { redis-cli -h "$AT" --no-auth-warning "$@"; }
memcached_at() {
    memcached -u memcache -l "$AT" -p "$1" -U 0 "${@:2}" &
    SERVER=$!
    accepts "$AT" "$1"
}
postgres() {
    local bin
    bin=$(echo /usr/lib/postgresql/*/bin)
    mkdir pg
    chown postgres pg
    by="setpriv --reuid=postgres --regid=postgres --clear-groups"
    (cd pg && $by "$bin/initdb" -D data -A trust -U postgres --no-sync >/dev/null)
    PGBIN=$bin
    (cd pg && exec $by "$bin/postgres" -D data -c listen_addresses=127.0.0.1 -c port=5432 \
        -c unix_socket_directories="$DIR/pg" -c dynamic_shared_memory_type=mmap -c fsync=off "$@" \
        >log 2>&1) &
    SERVER=$!
    until_ok sql 'select 1'
}
sql() { psql -qAtX -h "$DIR/pg" -U postgres -c "$1"; }
mariadb_server() {
    mkdir my
    chown mysql my
    by="setpriv --reuid=mysql --regid=mysql --clear-groups"
    (cd my && $by mariadb-install-db --no-defaults --skip-test-db \
        --auth-root-authentication-method=normal --datadir="$DIR/my/data" >/dev/null 2>&1)
    (cd my && exec $by mariadbd --no-defaults --bind-address=127.0.0.1 --port=3306 --skip-name-resolve \
        --datadir="$DIR/my/data" --socket="$DIR/my/socket" --pid-file="$DIR/my/pid" "$@" >log 2>&1) &
    SERVER=$!
    until_ok mysql_root 'select 1'
}
mysql_root() { mariadb --no-defaults -u root -S "$DIR/my/socket" -BNe "$1"; }
etcd_alone() {
    etcd --data-dir="$DIR/etcd" --name=alone --listen-client-urls=http://127.0.0.1:2379 \
        --advertise-client-urls=http://127.0.0.1:2379 --listen-peer-urls=http://127.0.0.1:0 \
        --initial-advertise-peer-urls=http://127.0.0.1:0 --initial-cluster=alone=http://127.0.0.1:0 \
        "$@" >etcd.log 2>&1 &
    SERVER=$!
    until_ok curl -fs http://127.0.0.1:2379/health
}
