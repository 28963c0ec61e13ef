"""The verbs of rmqctl, one module for each verb.

`inspect` has the verbs that only read a store. `change` has the verbs that change a store. `copies` has those that
write another store or folder, or send to another host.
"""
