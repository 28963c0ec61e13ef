"""The content of a store's folder, without a scan of the log."""
