# The first process of a host: sh -c THIS NAME ADDRESS GROUP DIRECTORY
# NAME arrives as $0. Ends, and the host with it, when its maker ends early.
set -eu
[ "$2" = - ] || echo 0 >"$2/all/cgroup.procs"
echo "$0" >/proc/sys/kernel/hostname
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run # sshd insists on a /run/sshd
mkdir /run/sshd
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount --bind "$3/etc-hosts" /etc/hosts
mount --bind "$3/passwd" /etc/passwd
read -r go # the link is there
ip -batch - <<END
link set dev lo up
addr add $1/16 dev eth0
link set dev eth0 up
END
exec "$(PATH=$PATH:/usr/sbin command -v sshd)" -D -e -f "$3/sshd_config" \
    -o "PidFile=$3/$0.pid" </dev/null
