"""The JSON document of a trace, with RocketMQ's names for the fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqctl.forensics.trace.links import lost_origins
from rmqctl.forensics.trace.stage import HALF
from rmqctl.forensics.trace.verdict import CHECK_TIMES, number
from rmqctl.format.properties import KEYS, TAGS
from rmqctl.format.timestamp import rfc3339
from rmqctl.text import counted

if TYPE_CHECKING:
    from rmqctl.forensics.trace.groups import GroupState
    from rmqctl.forensics.trace.log_scan import LogScan
    from rmqctl.forensics.trace.stage import Record, Stage
    from rmqctl.forensics.trace.trace import Trace
    from rmqctl.format.body.client_trace import ClientRecord

Row = dict[str, Any]
VERDICTS_MAX = 3


def document(trace: Trace, names: list[str]) -> Row:
    """Return the JSON document of a whole trace.

    `names` has the name of each store, as shown to the user.
    """
    return {
        "store": names[0],
        "stores": names,
        "found": bool(trace.lives),
        "verdict": verdict(trace, names),
        "stages": [
            _stage_row(life.unique_key, stage, life.stages[0], trace, names)
            for life in trace.lives
            for stage in life.stages
        ],
        "groups": [_group_row(state, names) for life in trace.lives for state in life.groups],
        "clientRecords": [
            _client_row(record, told, names) for life in trace.lives for record, told in life.client_records
        ],
        "searched": [
            _searched_row(scan, names, by_index=search.was_asked)
            for scan, search in zip(trace.scans, trace.searches, strict=True)
        ],
        "leftOut": trace.left_out,
        "remarks": _remarks(trace, names),
    }


def _remarks(trace: Trace, names: list[str]) -> list[str]:
    records = {stage.record.place: stage.record for life in trace.lives for stage in life.stages}
    lost = {offset for record in records.values() for offset in lost_origins(record, trace.stores[record.store])}
    remarks = [
        f"an earlier record of the message, at offset {offset}, is no longer in the log" for offset in sorted(lost)
    ]
    if trace.left_out:
        remarks.append(
            f"{counted(trace.left_out, 'more message')} with this key left out: --limit shows more; --topic or "
            "--unique-key selects"
        )
    remarks += [f"no message has the id {text}" for text in trace.missing if trace.lives]
    remarks += dict.fromkeys(trace.problems)
    remarks += list(dict.fromkeys(_copy_remark(shown, other, names) for shown, other in trace.unlike))
    if trace.dangling:
        from rmqctl.forensics.trace.not_found import remarks_of

        remarks += remarks_of(trace, names)
    return remarks


def _copy_remark(shown: Record, other: Record, names: list[str]) -> str:
    copy = f"copy of the record at offset {shown.message.physical_offset}"
    if other.is_whole:
        return f"{names[other.store]} has a whole {copy}"
    return f"the {copy} in {names[other.store]} is {other.damage or 'a placeholder'}"


def verdict(trace: Trace, names: list[str]) -> str:
    """Say in one line what happened to the messages.

    `names` has the name of each store, as shown to the user.
    """
    if not trace.lives:
        from rmqctl.forensics.trace.not_found import not_found_verdict

        return not_found_verdict(trace, names)
    verdicts = [life.verdict for life in trace.lives]
    count = len(verdicts) + trace.left_out
    if count == 1:
        return verdicts[0]
    shown = "; ".join(f"({number}) {text}" for number, text in enumerate(verdicts[:VERDICTS_MAX], 1))
    more = count - min(len(verdicts), VERDICTS_MAX)
    return f"{count} messages: {shown}" + (f"; and {more} more" if more > 0 else "")


def _stage_row(unique_key: str | None, stage: Stage, first: Stage, trace: Trace, names: list[str]) -> Row:
    record, message = stage.record, stage.record.message
    store = trace.stores[record.store]
    return {
        "kind": stage.kind,
        "uniqueKey": unique_key,
        "store": names[record.store],
        "path": record.path or store.commit_log.path_of(message.physical_offset),
        "physicalOffset": message.physical_offset,
        "size": message.size,
        "topic": stage.topic,
        "queueId": stage.queue_id,
        "queueOffset": stage.queue_offset,
        "storeTimestamp": message.store_timestamp,
        "storeTime": rfc3339(message.store_timestamp),
        "deltaMs": message.store_timestamp - first.record.message.store_timestamp,
        "msgId": message.msg_id,
        "bornTimestamp": message.born_timestamp,
        "bornHost": str(message.born_host),
        "reconsumeTimes": message.reconsume_times,
        "sysFlag": message.sys_flag,
        "tags": record.properties.get(TAGS),
        "keys": record.properties.get(KEYS),
        "dueTimestamp": stage.due,
        "dueTime": None if stage.due is None else rfc3339(stage.due),
        "checkTimes": number(record.properties.get(CHECK_TIMES)) if stage.kind == HALF else None,
        "group": stage.group,
        "reachable": stage.reachable,
        "readable": not stage.why_not,
        "whyNot": stage.why_not or None,
        "indexed": record.indexed,
        "damage": record.damage,
        "placeholder": record.message.placeholder,
        **trace.bodies.columns(message),
    }


def _group_row(state: GroupState, names: list[str]) -> Row:
    return {
        "group": state.group,
        "store": names[state.stage.record.store],
        "topic": state.stage.topic,
        "queueId": state.stage.queue_id,
        "queueOffset": state.stage.queue_offset,
        "offset": state.offset,
        "state": state.state,
        "behind": state.behind,
        "filtered": state.filtered,
        "visibleTimestamp": state.visible_ms,
        "visibleTime": None if state.visible_ms is None else rfc3339(state.visible_ms),
    }


def _client_row(record: Record, told: ClientRecord, names: list[str]) -> Row:
    return {
        "record": told.kind,
        "uniqueKey": told.msg_id,
        "timestamp": told.timestamp,
        "time": None if told.timestamp is None else rfc3339(told.timestamp),
        "group": told.group,
        "topic": told.topic,
        "requestId": told.request_id,
        "costMs": told.cost_ms,
        "success": told.success,
        "retryTimes": told.retry_times,
        "transactionState": told.state,
        "store": names[record.store],
        "physicalOffset": record.message.physical_offset,
    }


def _searched_row(scan: LogScan, names: list[str], *, by_index: bool) -> Row:
    log = scan.store.commit_log
    return {
        "store": names[scan.number],
        "byIndex": by_index,
        "minPhyOffset": log.min_offset,
        "parts": [
            {
                "fromOffset": part.start,
                "toOffset": part.end,
                "firstStoreTime": None if part.first_ms is None else rfc3339(part.first_ms),
                "lastStoreTime": None if part.last_ms is None else rfc3339(part.last_ms),
            }
            for part in scan.parts
        ],
        "findings": [
            {
                "code": damage.code,
                "path": damage.path or log.path_of(damage.physical_offset),
                "physicalOffset": damage.physical_offset,
                "detail": damage.detail,
            }
            for damage in scan.damages.values()
        ],
    }
