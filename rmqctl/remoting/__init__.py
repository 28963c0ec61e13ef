"""The RPC of brokers: frames, a client and a small server."""
