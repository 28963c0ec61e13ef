"""The verbs: one module for each.

`inspect` has the verbs that only read a store. `change` has the verbs that change a store.
"""
