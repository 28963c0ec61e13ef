"""Random damage to stores of the real brokers, and what must hold for every one; `python -m tests.damage --help` runs
more of it.
"""
