"""RocketMQ's RPC protocol: frames, a client and a small server."""
