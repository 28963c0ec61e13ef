"""Errors that a notebook shows in short.

Spark shows the text of an error of a data source with its traceback. The calls in rmqctl that led to the error would be
twenty lines above the one line that tells what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar

from rmqctl.errors import RmqctlError

T = TypeVar("T")


def in_short(call: Callable[..., T]) -> Callable[..., T]:
    """Return `call`, with errors of rmqctl that have no traceback below it."""

    @wraps(call)
    def called(*arguments: Any, **named: Any) -> T:
        try:
            return call(*arguments, **named)
        except RmqctlError as error:
            raise error.with_traceback(None) from None

    return called


def batches_in_short(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield record batches, with errors of rmqctl that have no traceback below this."""
    try:
        yield from batches
    except RmqctlError as error:
        raise error.with_traceback(None) from None
