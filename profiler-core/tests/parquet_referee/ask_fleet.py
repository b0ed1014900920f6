"""One of two SQL engines over a fleet: `ask_fleet.py ENGINE FOLDER VIEWS`, with ENGINE duckdb or datafusion.

Opens the tables, runs the statements of the file VIEWS, and then reads a query a line from its input. Prints the rows of
each as one line of JSON, and how long it took to standard error.
"""

import datetime
import decimal
import json
import sys
import time

TABLES = ["operations", "ranges", "recordings"]
PARTITIONS = ["job", "date", "host", "rank"]


def duckdb(folder):
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET threads = 2")
    types = ", ".join(f"'{name}': VARCHAR" for name in PARTITIONS)
    for table in TABLES:
        files = f"{folder}/{table}/**/*.parquet".replace("'", "''")
        connection.execute(
            f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{files}', hive_partitioning = true, "
            f"hive_types = {{{types}}}, union_by_name = true)"
        )
    return lambda query: connection.execute(query).fetchall()


def datafusion(folder):
    import pyarrow
    from datafusion import SessionConfig, SessionContext

    context = SessionContext(SessionConfig().with_target_partitions(2))
    for table in TABLES:
        context.register_listing_table(
            table,
            f"{folder}/{table}/",
            table_partition_cols=[(name, pyarrow.string()) for name in PARTITIONS],
            file_extension=".parquet",
        )

    def ask(query):
        rows = []
        for batch in context.sql(query).collect():
            rows += [tuple(row.values()) for row in batch.to_pylist()]
        return rows

    return ask


def plain(value):
    if isinstance(value, decimal.Decimal):
        return int(value)
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    return value


def main():
    engine, folder, views = sys.argv[1:]
    ask = {"duckdb": duckdb, "datafusion": datafusion}[engine](folder)
    with open(views, encoding="utf-8") as file:
        for statement in file.read().split(";\n"):
            if statement.strip():
                ask(statement)
    for query in sys.stdin:
        since = time.monotonic()
        rows = [[plain(value) for value in row] for row in ask(query)]
        print(f"{time.monotonic() - since:.2f} s: {query.strip()}", file=sys.stderr)
        print(json.dumps(rows))


main()
