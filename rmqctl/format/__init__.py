"""Conversion between bytes and records of RocketMQ's message store.

It opens no file.
"""
