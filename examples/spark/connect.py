"""The same tables by Spark Connect (in the clone: pip install '.[connect]').

Usage: `python examples/spark/connect.py sc://HOST:15002 STORE...`.

STORE is a path that the server and its executors see. They need rmqctl's libraries and pyarrow; rmqctl itself is sent.
"""

import os
import sys

from rmqctl.spark.question.stats import stats
from rmqctl.spark.session.session import Target, session
from rmqctl.spark.source.data_source import register

with session(Target(remote=sys.argv[1]), os.environ) as spark:
    register(spark)
    stats(spark.read.format("rocketmq").load(sys.argv[2:])).orderBy("broker", "topic", "queueId").show(truncate=False)
