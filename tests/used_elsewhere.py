"""Names that vulture takes for unused, each group with who uses it: `vulture` reads this file beside the code."""

# ruff: noqa: B018
# mypy: ignore-errors
from typing import Any

_: Any = None

# programs that import rmqctl.api call it
_.to_arrow

# the template of report reads it
_.further
_.lag_unknown

# click calls these
_.format_commands
_.format_epilog
_.shell_complete
_.complete

# socketserver calls or reads these
_.address_family
_.daemon_threads
_.handle
_.verify_request

# a field of timercheck that only the layout names
_.state_version

# for a type in quotes
_.BufferedIOBase

# numba calls or reads these
_._cache
_._cache_path
_.from_function
_.get_source_stamp

# columns of a kernel's state or rows: other modules read them by name
_.body_bytes
_.first_base
_.first_seen
_.keys_length
_.keys_start
_.last_row
_.pre_blank_end
_.tags_length
_.tags_start
_.uniq_key_length
_.uniq_key_start
_.value_length

# columns of the table of damage kinds: `codes` reads them by name
_.has_record
_.is_checked

# keys of a line: msgspec reads them, to refuse any other
_.body_error
_.born_time
_.store_time

# PySpark, py4j and pickle call or read these
_.DefaultSource
_.getDefaultReadLimit
_.handle_error
_.initialOffset
_.latestOffset
_.partitions
_.prepareForTriggerAvailableNow
_.pushFilters
_.reducer_override
_.streamReader

# RocketMQ's own values and answers: part of the engine's interface, compared with the real store in tests
_.DISK_FULL
_.NO_MATCHED_LOGIC_QUEUE
_.WRITE_INDEX_FILE_ERROR
_.__call__
_.async_put_messages
_.available
_.deleted_log_files
_.get_offset_in_queue_by_time
_.look_message_by_id
_.next_begin_offset
_.plan_restart
_.query_message
_.queues_are_cut

# replication: the engine, `replicate` and `serve` use these
_.HA_HOUSEKEEPING_INTERVAL
_.HA_SEND_HEARTBEAT_INTERVAL
_.HA_TRANSFER_BATCH_SIZE
_.decode_transfer
_.encode_report
_.is_end_of_transfer
