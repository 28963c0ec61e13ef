"""Why a store is not healthy: causes, and the findings that they explain.

Nothing here plans or writes.
"""
