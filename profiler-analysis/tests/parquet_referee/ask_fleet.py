"""An SQL engine over a fleet: `ask_fleet.py ENGINE FOLDER VIEWS`, with ENGINE duckdb, datafusion or spark.

Opens the tables, runs the statements of the file VIEWS, and then reads a query a line from its input. Prints the rows of
each as one line of JSON, and how long it took to standard error.
"""

import datetime
import decimal
import json
import sys
import time

TABLES = ["operations", "ranges", "recordings"]
FAST_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
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


def spark(folder):
    from pyspark.sql import SparkSession

    options = {
        # Two executors of a core each, in processes of their own.
        "spark.master": "local-cluster[2,1,1024]",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # 200 tasks for each question take minutes on two cores.
        "spark.sql.shuffle.partitions": "4",
        # Labels that are digits stay texts.
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        "spark.ui.enabled": "false",
        # Each question runs once: compiling for speed takes longer than it saves.
        "spark.driver.extraJavaOptions": FAST_START,
        "spark.executor.extraJavaOptions": FAST_START,
        "spark.sql.codegen.wholeStage": "false",
    }
    builder = SparkSession.builder.appName("fleet")
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    for table in TABLES:
        frame = session.read.option("mergeSchema", "true").parquet(f"{folder}/{table}")
        frame.createOrReplaceTempView(table)

    def ask(query):
        # Spark's other views need tables of a catalog.
        query = query.replace("CREATE OR REPLACE VIEW", "CREATE OR REPLACE TEMPORARY VIEW")
        return session.sql(query).collect()

    return ask


def plain(value):
    if isinstance(value, decimal.Decimal):
        return int(value)
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    return value


def main():
    engine, folder, views = sys.argv[1:]
    ask = {"duckdb": duckdb, "datafusion": datafusion, "spark": spark}[engine](folder)
    with open(views, encoding="utf-8") as file:
        for statement in file.read().split(";\n"):
            if statement.strip():
                ask(statement)
    for query in sys.stdin:
        since, cpu = time.monotonic(), time.process_time()
        rows = [[plain(value) for value in row] for row in ask(query)]
        took = f"{time.monotonic() - since:.2f} s, {time.process_time() - cpu:.2f} s of CPU"
        print(f"{took}: {query.strip()}", file=sys.stderr)
        print(json.dumps(rows))


main()
