#!/bin/sh
# Builds the locks of this folder with the libraries that they wrap, below the first
# argument (target/own-locks if there is none). Needs python3 with venv, go, npm, and
# mvn with a JDK; `cargo xtask long` installs these and runs it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
place=${1:-$here/../../../target/own-locks}
mkdir -p "$place"
place=$(cd "$place" && pwd)

[ -x "$place/python/bin/python" ] || python3 -m venv "$place/python"
"$place/python/bin/pip" install --quiet --disable-pip-version-check \
    -r "$here/python/requirements.txt"

(cd "$here/go" && go build -o "$place/go/" ./...)

mkdir -p "$place/node"
cp "$here"/node/package.json "$here"/node/package-lock.json "$here"/node/*.mjs "$place/node"
npm --prefix "$place/node" ci --silent --no-audit --no-fund

mvn --quiet --batch-mode -f "$here/java/pom.xml" "-DbuildDirectory=$place/java" package
