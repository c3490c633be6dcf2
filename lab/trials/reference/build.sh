#!/bin/sh
# build.sh BELOW go | java CLASS | c NAME HOW...: builds a reference client below a directory, and prints the
# words that run it, a line each.
set -eu
below=$1 language=$2
shift 2
cd "$(dirname "$0")/$language"
mkdir -p "$below"
case $language in
go)
    go build -o "$below/etcd" .
    echo "$below/etcd"
    ;;
java)
    mvn --quiet --batch-mode "-DbuildDirectory=$below/java" package >&2
    # Performance data would be a file in /tmp.
    printf '%s\n' java -XX:-UsePerfData -cp "$below/java/classes:$below/java/lib/*" "$1"
    ;;
c)
    name=$1
    shift
    # Libraries serve what stands before them.
    cc -O2 -Wall -Wextra -pthread -o "$below/$name" "$name.c" "$@"
    echo "$below/$name"
    ;;
esac
