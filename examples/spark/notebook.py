"""Stores as tables: cells for a notebook, or a script (in the clone: pip install '.[spark]').

Usage as a script: `python examples/spark/notebook.py STORE...`.

If the notebook already has a session (`spark`), leave out the first cell. Spark finds `rocketmq` by itself if rmqctl is
installed in the Python that `PYSPARK_PYTHON` names, and for the executors; man rmqctl-spark says how.
"""

# %% a session, which ends with the process
import os
import sys
from contextlib import ExitStack

from pyspark.sql import functions as f

from rmqctl.spark.question.duplicates import duplicates
from rmqctl.spark.question.lost import lost
from rmqctl.spark.question.stats import stats
from rmqctl.spark.question.timeline import timeline
from rmqctl.spark.session.session import Target, session

STORES = sys.argv[1:]
stack = ExitStack()
spark = stack.enter_context(session(Target(), os.environ))

# %% a row a record: messages, blanks, and damaged places with what is wrong there
records = spark.read.format("rocketmq").load(STORES)
records.groupBy("store", "kind", "damage").count().show(truncate=False)

# %% the functions that the jobs are: DataFrame -> DataFrame
stats(records).orderBy(f.desc("bytes")).show(truncate=False)
timeline(records, by_topic=True).orderBy("timestamp").show(truncate=False)
duplicates(records).show(truncate=False)

# %% messages that no queue reaches
lost(records, spark.read.format("rocketmq-queues").load(STORES)).show(truncate=False)

# %% SQL; only the columns that are named are made
records.createOrReplaceTempView("messages")
spark.sql(
    "SELECT topic, tags, count(*) AS messages FROM messages WHERE kind = 'message' GROUP BY ALL ORDER BY messages DESC"
).show()

# %% the end
stack.close()
