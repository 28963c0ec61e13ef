"""The verbs: one module for each.

`inspect` has the verbs that only read a store, `change` those that change one.
"""
