"""The options of a verb as one typed, frozen object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def options_in(**kinds: type[DataclassInstance]) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return a decorator that passes options to a verb in frozen dataclasses.

    With `asked=DumpOptions`, the verb gets one argument `asked`, an object of DumpOptions. Each field gets the value of
    the click parameter with the field's name. Write this decorator below the decorators of the options.
    """

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        @wraps(command)
        def with_objects(**given: Any) -> int:
            made = {
                name: kind(**{field.name: given.pop(field.name) for field in fields(kind)})
                for name, kind in kinds.items()
            }
            return command(**made, **given)

        return with_objects

    return decorate
