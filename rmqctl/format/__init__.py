"""Conversion between bytes and records of RocketMQ's message store.

This package does not open files.
"""
