"""Bytes <-> records of RocketMQ's message store.

This package does not open files.
"""
