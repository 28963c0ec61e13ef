"""JSON in the dialect of fastjson, in which brokers write their configuration."""

from __future__ import annotations

import json
import re
from typing import Any

from rmqctl.store.config import bounded_json

SIGNS_MAX = 2_000_000  # in about 500,000 fields: 50,000 topics of topics.json
# a string, ended or not, is taken whole (possessively, or a torn file would cost its square); or a number before a
# colon
_STRING_OR_BARE_KEY = re.compile(r'"(?:[^"\\]|\\.)*+"?|(?<![\w.+-])(-?\d+)(?=\s*:)', re.DOTALL)


def fastjson_loads(text: str) -> Any:
    """Parse JSON as fastjson writes it, with unquoted integer keys (`{0:375,1:375}`).

    The keys are returned as strings. `bounded_json` parses the rest. Raises ValueError for input that is not JSON,
    however deep, large or broken it is.
    """
    bounded_json.check_signs(text, SIGNS_MAX)
    quoted = _STRING_OR_BARE_KEY.sub(lambda m: f'"{m[1]}"' if m[1] else m[0], text)
    return bounded_json.loads(quoted, 2 * SIGNS_MAX)  # keys have got quotes


def fastjson_dumps(value: Any, depth: int = 1) -> str:
    """Return JSON as fastjson writes a broker's configuration, with its tabs.

    A map with integer keys is written in one line, with unquoted keys. The order is that of the map: fastjson sorts the
    fields of a bean.
    """
    if not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False)
    end = "\n" + "\t" * (depth - 1) + "}"
    if all(isinstance(key, int) for key in value):
        return "{" + ",".join(f"{key}:{fastjson_dumps(inner, depth + 1)}" for key, inner in value.items()) + end
    separator = "\n" + "\t" * depth
    fields = (f"{separator}{json.dumps(key)}:{fastjson_dumps(value[key], depth + 1)}" for key in value)
    return "{" + ",".join(fields) + end
