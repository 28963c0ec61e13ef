"""JSON in the dialect of fastjson.

Brokers write their configuration in this dialect.
"""

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
    """Parse JSON as fastjson writes it.

    Keys may be integers without quotes, as in `{0:375,1:375}`. These keys are returned as strings. `bounded_json`
    parses the JSON after this change. Raises ValueError for any text that is not JSON, and for JSON that is nested too
    deep or is too large.
    """
    bounded_json.check_signs(text, SIGNS_MAX)
    quoted = _STRING_OR_BARE_KEY.sub(lambda m: f'"{m[1]}"' if m[1] else m[0], text)
    return bounded_json.loads(quoted, 2 * SIGNS_MAX)  # keys have got quotes


def fastjson_dumps(value: Any, depth: int = 1) -> str:
    """Return JSON as fastjson writes a broker's configuration, with tabs.

    A map with integer keys is written in one line, and its keys have no quotes. Keys are written in the order of the
    map. (fastjson itself sorts the fields of a bean; this function does not sort.)
    """
    if not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False)
    end = "\n" + "\t" * (depth - 1) + "}"
    if all(isinstance(key, int) for key in value):
        return "{" + ",".join(f"{key}:{fastjson_dumps(inner, depth + 1)}" for key, inner in value.items()) + end
    separator = "\n" + "\t" * depth
    fields = (f"{separator}{json.dumps(key)}:{fastjson_dumps(value[key], depth + 1)}" for key in value)
    return "{" + ",".join(fields) + end
