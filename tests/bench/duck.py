"""`python -m tests.bench.duck QUERY`: the rows of a query by DuckDB, as JSON; a query can read /dev/stdin."""

from __future__ import annotations

import json
import sys

import duckdb

print(json.dumps(duckdb.execute(sys.argv[1]).fetchall()))
