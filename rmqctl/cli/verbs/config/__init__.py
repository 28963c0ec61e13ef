"""The verbs of `rmqctl config`, for the folder config/ of a store."""
