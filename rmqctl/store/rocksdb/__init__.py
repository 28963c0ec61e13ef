"""The log that DLedger writes."""
