"""What a store's folder has, without a scan of the log."""
