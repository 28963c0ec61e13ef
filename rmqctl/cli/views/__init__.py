"""The views: how verbs show their plans and results."""
