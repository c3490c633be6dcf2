#!/bin/sh
# Installs the load generators and servers of all tables, beside the Debian packages of
# lab/testbed/src/packages.rs: from Go, Rust, npm and pip, under target/generators.
set -eu
cases=$(cd "$(dirname "$0")" && pwd)
place=$cases/../../../target/generators
mkdir -p "$place" && cd "$place"
export GOBIN="$PWD/bin"
[ -x bin/vegeta ] || go install github.com/tsenart/vegeta/v12@v12.13.0
[ -x bin/bombardier ] || go install github.com/codesenberg/bombardier@v1.2.6
[ -x bin/k6 ] || go install go.k6.io/k6@v1.8.1
[ -x bin/oha ] || cargo install --quiet --locked --root . oha@1.16.0
go build -o bin/client "$cases/client.go"
cc -O2 -o bin/client-c "$cases/client.c"
rustc --edition 2024 -O -o bin/client-rs "$cases/client.rs"
javac -d . "$cases/Client.java"
[ -d node_modules/undici ] || npm install --silent --no-audit --no-fund \
  autocannon@9 loadtest@8 express@4 fastify@4 undici@6
[ -x python/bin/locust ] || python3 -m venv python
python/bin/python -m pip install --quiet --disable-pip-version-check \
  locust cheroot gunicorn uvicorn hypercorn waitress flask tornado aiohttp httpx requests granian
