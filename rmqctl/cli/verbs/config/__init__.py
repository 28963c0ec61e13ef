"""The verbs of `config`, for the folder config/ of a store."""
