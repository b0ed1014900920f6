"""DuckDB over a folder of Parquet files: `ask_duckdb.py FOLDER`.

Every table is a view of its name. Reads a query a line from its input, and prints the rows of each as one line of JSON.
"""

import json
import pathlib
import sys

import duckdb

folder = pathlib.Path(sys.argv[1])
connection = duckdb.connect()
for table in sorted(folder.iterdir()):
    files = str(table / "**" / "*.parquet").replace("'", "''")
    connection.execute(
        f"CREATE VIEW \"{table.name}\" AS SELECT * FROM read_parquet('{files}', hive_partitioning = true)"
    )
for query in sys.stdin:
    rows = connection.execute(query).fetchall()
    print(json.dumps(rows))
