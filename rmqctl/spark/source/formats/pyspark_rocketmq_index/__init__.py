"""Spark finds the format `rocketmq-index` in this package."""

from rmqctl.spark.source.data_source import formats

DefaultSource = formats()["rocketmq-index"]
