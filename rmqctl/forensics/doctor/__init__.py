"""The causes that make a store unhealthy, and the findings that they explain.

No code in this package plans or makes a change.
"""
