"""The views: how verbs show their plans and results, in the rooms of the verbs."""
