"""The options of a verb, in typed, frozen objects, or kept in the context."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

F = TypeVar("F", bound=Callable[..., Any])


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


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator for several options, in the order of the help."""

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def kept_option(*names: str, **settings: Any) -> Callable[[F], F]:
    """Return the decorator for an option whose value `kept` returns.

    It is for options that no verb needs itself, such as those with which `open_store` opens a store.
    """

    def keep(context: click.Context, option: click.Parameter, value: Any) -> None:
        context.meta[f"rmqctl.{option.name}"] = value

    return click.option(*names, expose_value=False, callback=keep, **settings)


def kept(name: str) -> Any:
    """Return the kept value of the option with the parameter name `name`.

    The result is None if the verb has no such option.
    """
    return click.get_current_context().meta.get(f"rmqctl.{name}")
