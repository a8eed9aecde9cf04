"""Runs the queries of a file of packaging/fleet: query.py ENGINE FILE [NAME]...

A query has its name before it (`-- name`). Its result is printed as a JSON line: name, rows. For Spark,
LINERATE_SPARK is the URL of the cluster.
"""
import decimal
import json
import os
import pathlib
import sys
import threading
import time

engine, path, *chosen = sys.argv[1:]
queries = {}
for line in open(path):
    if line.startswith('-- '):
        name = line[3:].strip()
    queries.setdefault(name, []).append('' if line.startswith('--') else line)
queries = {name: ''.join(text).strip() for name, text in queries.items() if ''.join(text).strip()}


def statements(text):
    return [one.strip() for one in text.split(';\n') + [''] if one.strip(' ;\n')]


if engine == 'duckdb':
    import duckdb
    import duckdb_extension_httpfs
    connection = duckdb.connect()
    # The extension for object stores, from PyPI: INSTALL would download it from DuckDB's own server.
    folder = pathlib.Path(duckdb_extension_httpfs.__file__).parent
    for extension in folder.glob(f'**/v{duckdb.__version__}/httpfs.duckdb_extension'):
        connection.execute(f"LOAD '{extension}'")

    def rows(text):
        cursor = connection.execute(text)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row)) for row in cursor.fetchall()]

    define = connection.execute
elif engine == 'clickhouse':
    import tempfile
    from chdb.session import Session
    session = Session(tempfile.mkdtemp())
    session.query('CREATE DATABASE IF NOT EXISTS fleet ENGINE = Atomic; USE fleet')
    settings = ' SETTINGS output_format_json_quote_64bit_integers = 0'

    def rows(text):
        return [json.loads(row) for row in str(session.query(text.rstrip(';') + settings, 'JSONEachRow')).splitlines()]

    def define(text):
        try:
            session.query(text)
        except Exception as error:
            # Without its server, the engine creates and reads a Kafka table, and raises this error once.
            if 'ENGINE = Kafka' not in text or 'Shutdown was called' not in str(error):
                raise
else:
    from pyspark.sql import SparkSession
    builder = SparkSession.builder.master(os.environ['LINERATE_SPARK']).appName('queries')
    if 's3a:' in queries['define']:
        jars = pathlib.Path(os.environ['LINERATE_FLEET'], 'hadoop-aws/lib').glob('*.jar')
        builder = builder.config('spark.jars', ','.join(map(str, jars)))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel('ERROR')

    def rows(text):
        return [row.asDict() for row in spark.sql(text.rstrip(';')).collect()]

    def define(text):
        spark.sql(text.rstrip(';'))


def executors():
    """How many executors are active, and how many were lost."""
    store = spark.sparkContext._jsc.sc().statusStore().executorList(False)
    listed = [store.apply(n) for n in range(store.size())]
    return {
        'active': sum(one.isActive() for one in listed if one.id() != 'driver'),
        'lost': sum(not one.isActive() for one in listed if one.id() != 'driver'),
    }


def watch():
    """Prints a line when some tasks of the query have ended and others have not: a worker may be killed now."""
    tracker = spark.sparkContext.statusTracker()
    while True:
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info and info.numCompletedTasks >= 4 and info.numTasks - info.numCompletedTasks >= 4:
                print(json.dumps(['running', [dict(info._asdict())]]), flush=True)
                return
        time.sleep(0.01)


def plain(value):
    """Sums are decimals in some engines; times become text."""
    return int(value) if isinstance(value, decimal.Decimal) else str(value)


for name, text in queries.items():
    if name == 'define':
        for one in statements(text):
            define(one)
    elif name == 'wait':
        # Waits until all LINERATE_RECORDS rows have arrived.
        deadline = time.time() + 300
        while rows(text)[0]['records'] < int(os.environ['LINERATE_RECORDS']):
            if time.time() > deadline:
                sys.exit(f'of {os.environ["LINERATE_RECORDS"]} records {rows(text)} arrived')
            time.sleep(0.5)
    elif not chosen or name in chosen:
        if name.startswith('long'):
            threading.Thread(target=watch, daemon=True).start()
        print(json.dumps([name, rows(text)], default=plain), flush=True)
        if name.startswith('long'):
            print(json.dumps(['executors', [executors()]]), flush=True)
sys.stdout.flush()
# chDB does not exit while it reads from Kafka.
os._exit(0)
