"""Logs that DLedger wrote."""
