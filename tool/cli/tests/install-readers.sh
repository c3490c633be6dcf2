#!/bin/sh
# Installs what the examples of tool/docs/data.md read results with, beside the Debian packages
# of the list: pandas and DuckDB, in an environment under target/readers.
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
place=$root/target/readers
[ -x "$place/bin/python" ] || python3 -m venv "$place"
"$place/bin/python" -m pip install --quiet --disable-pip-version-check 'pandas>=2' 'duckdb>=1'
"$place/bin/python" -c 'import pandas, duckdb; print("pandas", pandas.__version__, "duckdb", duckdb.__version__)'
