"""Options whose text a function parses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable


class Parsed(click.ParamType):  # type: ignore[type-arg]
    """The type of an option whose text is parsed by a function.

    If `parse` raises ValueError, its message is the usage error. A default that is no text is used as it is. `name` is
    what the help shows.
    """

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse the text of an option."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
