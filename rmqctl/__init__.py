"""rmqctl: operations and forensics for Apache RocketMQ message stores, offline."""

__version__ = "0.1.0"
