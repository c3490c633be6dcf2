#!/bin/sh
# Installs the load generators of cases.tsv, beside the Debian packages of
# lab/testbed/src/packages.rs: from Go, npm and pip, under target/generators.
set -eu
cases=$(cd "$(dirname "$0")" && pwd)
place=$cases/../../../target/generators
mkdir -p "$place" && cd "$place"
export GOBIN="$PWD/bin"
[ -x bin/vegeta ] || go install github.com/tsenart/vegeta/v12@v12.13.0
[ -x bin/bombardier ] || go install github.com/codesenberg/bombardier@v1.2.6
go build -o bin/client "$cases/client.go"
[ -e Client.class ] || javac -d . "$cases/Client.java"
[ -x node_modules/.bin/autocannon ] || npm install --silent --no-audit --no-fund autocannon@9
[ -x python/bin/locust ] || python3 -m venv python
python/bin/python -m pip install --quiet --disable-pip-version-check locust cheroot
