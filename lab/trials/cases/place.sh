#!/bin/sh
# place.sh PLACE PORT: makes the place of a case in this network namespace, which nobody else uses.
# Prints four lines: the address by which the client reaches the server, the one at which the
# server listens, and what the command lines of client and server begin with. When its input ends,
# it removes what it made. place.sh enter PROCESS WORD...: runs a command where that process is.
#
# apart   client and server in namespaces of their own, linked to a bridge; inside: judge with the client
# dnat    the client asks the bridge, and the destination is translated; snat: the source too
# hop     the client asks the bridge, where a forwarder (socat) listens
# client  the client alone is elsewhere
# podman  the server is in a container whose port is published
# noise   all are here, and so are other programs' connections
set -eu
own=$(readlink -f "$0") place=$1 port=$2
if [ "$place" = enter ]; then
    shift 2
    # The shell waits outside of the process namespace: nsenter itself stops when its child does.
    exec nsenter -t "$port" -n -i -m -p -F env -C "$PWD" sh -c '"$@"; exit $?' sh "$@"
fi
if [ "${3:-}" = "" ] && [ "$(ip -o link | wc -l)" != 1 ]; then
    echo "place.sh: this network namespace is others', or something is left in it: $(ip -br link)" >&2
    exit 1
fi
# podman's own files, and the root that it is given, are seen by nobody else.
[ "$place" != podman ] || [ "${3:-}" = private ] || exec unshare --mount "$own" podman "$port" private
exec 3<&0

host=127.0.0.1 listen=127.0.0.1 client= server= firsts= groups= podman= ended=
gate=198.18.0.1 at=198.18.1.2

finish() {
    trap '' INT TERM
    [ -z "$podman" ] || $podman rm --force --time 0 case > /dev/null
    # They end with our input, unless it is an error that ends this program.
    [ -n "$ended" ] || [ -z "$firsts" ] || kill -KILL $firsts || true
    for group in $groups; do kill -TERM "-$group" || true; done 2> /dev/null
    wait
    # A link may be gone with the namespace of its other end.
    for link in client server podman0 case; do ip link delete "$link" || true; done 2> /dev/null
    case $place in dnat | snat | podman) nft flush ruleset ;; esac
}
trap finish EXIT
trap 'exit 1' INT TERM

# A process with namespaces of its own, and a link from there to the bridge: NAME ADDRESS GATEWAY.
member() {
    unshare --net --ipc --pid --mount-proc --fork --kill-child sh -c \
        'mount -t tmpfs tmpfs /dev/shm; ip link set lo up; read -r never' <&3 > /dev/null &
    tries=0
    until first=$(pgrep -P $!) && nsenter -t "$first" -n ip link show up dev lo | grep -q .; do
        [ $((tries += 1)) -lt 1000 ]
        sleep 0.01
    done
    firsts="$firsts $first"
    ip link add "$1" type veth peer name eth0 netns "$first"
    ip link set "$1" master case up
    nsenter -t "$first" -n sh -c \
        "ip addr add $2/24 dev eth0 && ip link set eth0 up && ip route add default via $3"
}

# A program in a group of its own.
beside() {
    setsid "$@" <&3 > /dev/null &
    groups="$groups $!"
}

case $place in
apart | dnat | snat | hop | inside | client)
    ip link add case type bridge
    ip addr add $gate/24 dev case
    ip addr add 198.18.1.1/24 dev case
    ip link set case up
    echo 1 > /proc/sys/net/ipv4/ip_forward
    for each in all case; do echo 0 > /proc/sys/net/ipv4/conf/$each/send_redirects; done
    member client 198.18.0.2 $gate
    client="$own enter $first" host=$gate listen=$gate
    ;;
esac
case $place in
apart | dnat | snat | hop | inside)
    member server $at 198.18.1.1
    server="$own enter $first" listen=$at
    ;;
esac
case $place in
apart | inside)
    host=$at
    ;;
dnat | snat)
    nft "add table ip case; add chain ip case before { type nat hook prerouting priority -100; };
        add rule ip case before ip daddr $gate tcp dport $port dnat to $at"
    [ "$place" = dnat ] || nft "add chain ip case after { type nat hook postrouting priority 100; };
        add rule ip case after ip daddr $at masquerade"
    ;;
hop)
    beside socat "TCP-LISTEN:$port,bind=$gate,fork,reuseaddr,nodelay,backlog=1024" \
        "TCP:$at:$port,nodelay"
    until ss -Hltn "sport = :$port" | grep -q .; do sleep 0.01; done
    ;;
podman)
    mount -t tmpfs tmpfs /run
    # crun knows either version of control groups, and not both beside each other.
    [ ! -d /sys/fs/cgroup/unified ] || umount /sys/fs/cgroup/unified
    mkdir -p /run/case/root
    mount --rbind / /run/case/root
    podman="podman --root /run/case/storage --storage-driver vfs --runroot /run/case/run
        --tmpdir /run/case/tmp --cgroup-manager cgroupfs --events-backend none"
    limits="--ulimit nofile=$(ulimit -n):$(ulimit -n) --ulimit nproc=9999:9999"
    server=$(echo nsenter -t $$ -m $podman run --rm --name case --privileged --cgroups disabled \
        $limits --env-host --publish "$host:$port:$port" --rootfs /run/case/root)
    listen=0.0.0.0
    ;;
noise)
    beside python3 "${own%place.sh}noise.py"
    ;;
esac
printf '%s\n' "$host" "$listen" "$client" "$server"
read -r never || ended=yes
