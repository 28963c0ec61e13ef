"""Bytes <-> records of RocketMQ's message store. Pure: nothing here touches a file."""
