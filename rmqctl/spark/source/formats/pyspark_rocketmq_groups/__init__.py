"""Spark finds the format `rocketmq-groups` in this package."""

from rmqctl.spark.source.data_source import formats

DefaultSource = formats()["rocketmq-groups"]
