"""Spark finds the format `rocketmq-queues` in this package."""

from rmqctl.spark.source.data_source import formats

DefaultSource = formats()["rocketmq-queues"]
