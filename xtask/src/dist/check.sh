# What is done with each package, a function for each, which check.rs calls by its name: in a clean
# root, or beside one without a shell. ARCH and DEBIAN name the processor, VERSION the packages,
# FOLDER the tarball; QEMU runs another processor's programs, STATIC are those without a C library.
set -Eeu
trap 'echo "failed: $BASH_COMMAND" >&2' ERR

answers() { # until a PING is answered, for 20 s at most
    for _ in $(seq 200); do
        if exec 3<>/dev/tcp/127.0.0.1/2626; then
            printf 'PING\r\n' >&3
            IFS= read -r -t 5 reply <&3 || reply=nothing
            exec 3>&-
            echo "PING: $reply"
            [ "$reply" = "$(printf '+PONG\r')" ] && return 0
        fi 2>/dev/null
        sleep 0.1
    done
    echo "jostled does not answer" >&2
    return 1
}
# A run that other programs disturbed is INVALID (exit code 3): the package works all the same, if all
# acquisitions were checked.
measures() {
    code=0; said=$("$@" --runs 1 --no-progress) || code=$?
    echo "$said"
    case $code in 0|3) ;; *) return 1 ;; esac
    echo "$said" | tr -s ' \n' '  ' | grep -q 'Checked: [0-9,]* acquisitions, 0 overlaps'
}
contends() { measures "$@" contend flock sysv -w 2 -t 1; } # two locks, a second each
calls() { # until the engine has answered: its exit code
    for _ in $(seq 200); do
        code=0; "$@" 2>/dev/null || code=$?
        [ "$code" = 69 ] || break
        sleep 0.1
    done
    echo "jostle-call: $code"
}
finds() { # the file is 2000 bytes: too large for 1000, not for 3000
    head -c 2000 /dev/zero > /tmp/spooled
    calls "$1" /sizecheck file=spooled max=1000
    [ "$code" = 1 ]
    "$1" /sizecheck file=spooled max=3000
}
package() { echo "packages/$1_${VERSION}_$DEBIAN.deb"; }
ends() { kill "$server"; wait "$server"; }

tarball() {
    tar -xzf "packages/$FOLDER.tar.gz" -C /usr/local --strip-components=1
    contends jostle
    test -f /usr/local/include/jostle_lock.h
    jostled --data none & answers
    jostle-lock job -- true
    procd --listen none --spool /tmp & finds jostle-call
}
jostle_deb() {
    dpkg -i "$(package jostle)"
    contends jostle
    jostle run lockscale --dry-run > /dev/null
    test -f /usr/share/bash-completion/completions/jostle
    test -f /usr/share/man/man1/jostle-contend.1
    dpkg --purge jostle
    test ! -e /usr/bin/jostle
}
jostled_deb() {
    dpkg -i "$(package jostled)"
    test -f /usr/lib/systemd/system/jostled.service
    jostled --config /etc/jostled.toml --data none & server=$!
    answers
    jostle-lock job -- true
    ends
    dpkg --purge jostled
    test ! -e /etc/jostled.toml
}
procd_deb() {
    dpkg -i "$(package procd)"
    procd --config /etc/procd.toml --spool /tmp & server=$!
    finds jostle-call
    ends
    dpkg --purge procd
    test ! -e /usr/bin/jostle-call
}
wheel() {
    python3 -m venv /tmp/v
    /tmp/v/bin/pip install --no-index packages/jostle-"$VERSION"-*_"$ARCH".whl
    contends /tmp/v/bin/jostle
    /tmp/v/bin/jostle run lockscale --dry-run > /dev/null
    /tmp/v/bin/pip uninstall -y jostle
    test ! -e /tmp/v/bin/jostle
}
units() { # systemd finds no fault in a unit: neither by its status nor by a word about the file
    dpkg -i "$(package jostled)" "$(package procd)"
    cd /usr/lib/systemd/system
    said=$(systemd-analyze verify jostled.service jostled.socket procd.service 2>&1)
    if echo "$said" | grep -E '(jostled|procd)[.](service|socket)'; then exit 1; fi
}
mpi() { # in the place of an installed jostle: two ranks measure a server together
    dpkg -i "$(package jostle)" "$(package jostled)"
    dpkg -i --auto-deconfigure "$(package jostle-mpi)"
    jostled --data none & server=$!
    answers
    measures mpirun --allow-run-as-root --oversubscribe -n 2 --mca mpi_yield_when_idle 1 \
        jostle stream lockd://127.0.0.1:2626 -w 2 -n 100
    echo "$said" | grep -q '2 hosts'
    ends
    dpkg --purge jostle-mpi
    test ! -e /usr/bin/jostle
}
# The programs of a tarball for another processor. Nothing is measured: qemu adds a thread of its own to
# each process, and jostle forks only from one that has one. Nor does qemu know openat2(2), without
# which procd serves no files: it answers that there is no such procedure.
emulated() {
    tar -xzf "packages/$FOLDER.tar.gz" -C tmp --strip-components=1
    $QEMU tmp/bin/jostle --version
    $QEMU tmp/bin/jostle run lockscale --dry-run
    $QEMU tmp/bin/jostled --data none & answers
    $QEMU tmp/bin/procd --listen none & calls $QEMU tmp/bin/jostle-call /no_such_procedure
    [ "$code" = 70 ]
    for name in jostle jostled procd; do
        [ "$(dpkg-deb --field "$(package $name)" Architecture)" = "$DEBIAN" ]
    done
}
image() { # as the tools of containers see it, and its programs in namespaces
    archive=oci-archive:packages/$FOLDER.oci.tar:jostle:$VERSION
    said=$(skopeo --override-arch "$DEBIAN" inspect "$archive")
    echo "$said" | grep -q "\"Architecture\": \"$DEBIAN\""
    echo "$said" | grep -q '"Os": "linux"'
    # It compares every digest on the way.
    skopeo --insecure-policy --override-arch "$DEBIAN" copy --quiet "$archive" "oci:/tmp/layout:$VERSION"
    umoci unpack --image "/tmp/layout:$VERSION" /tmp/bundle
    cd /tmp/bundle/rootfs
    test -s etc/ssl/certs/ca-certificates.crt
    for place in proc sys dev tmp; do
        mkdir -p $place
        mount --rbind "$OLDPWD/$place" $place
    done
    if [ -n "$QEMU" ]; then # emulated above; here its loader and libraries have to fit together
        ${QEMU%% *} -L "$PWD" usr/bin/jostle contend flock sysv -w 2 -t 1 --dry-run
        return
    fi
    inside="chroot --userspec=65532:65532 . /usr/bin"
    contends $inside/jostle
    $inside/jostled --data none & answers
    $inside/jostle-lock job -- /usr/bin/jostle --version
    measures $inside/jostle stream lockd://127.0.0.1:2626 -n 100
}
unpacked() { # what can be seen without installing anything
    for name in jostle jostled procd; do dpkg-deb -x "$(package $name)" unpacked; done
    cd unpacked
    usr/bin/jostle --version | grep "^jostle $VERSION"
    # An installed plan is found from any folder.
    usr/bin/jostle run lockscale --dry-run | grep -q '^\[\[experiment\]\]'
    for program in $STATIC; do usr/bin/"$program" --version | grep -F "$VERSION"; done
    cd ..
    tar -tzf "packages/$FOLDER.tar.gz" > listed
    for file in bin/jostle bin/jostled bin/jostle-lock include/jostle_lock.h share/man/man1/jostle-contend.1 \
        share/bash-completion/completions/jostle lib/systemd/system/jostled.service share/doc/jostle/LICENSE-MIT
    do grep -qx "$FOLDER/$file" listed; done
    # It compares each file with its sum in RECORD.
    /usr/bin/python3 -m wheel unpack --dest wheel packages/*.whl
    cmp "wheel/jostle-$VERSION/jostle-$VERSION.data/scripts/jostle" unpacked/usr/bin/jostle
}
