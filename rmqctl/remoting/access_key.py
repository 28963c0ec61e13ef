"""The signature with which a client shows that it knows an access key.

ACL 1.0 checks it, and ACL 2.0 (5.3 and later) over remoting. The values of all extFields, in the order of their names,
and the body are signed with HMAC-SHA1. The secret never goes over the wire.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Mapping
from typing import NamedTuple

from rmqctl.errors import BadRequest

_SETTING = re.compile(r"""\s*(accessKey|secretKey|securityToken)\s*[:=]\s*(["']?)(.*?)\2\s*""")


class AccessKey(NamedTuple):
    """An access key with its secret; `token` is empty unless a cloud issued one."""

    name: str
    secret: str
    token: str = ""

    def signed(self, fields: Mapping[str, str], body: bytes) -> dict[str, str]:
        """Return the fields of a request, with those that show the key."""
        found = {**fields, "AccessKey": self.name}
        if self.token:
            found["SecurityToken"] = self.token
        content = "".join(found[name] for name in sorted(found)).encode() + body
        digest = hmac.digest(self.secret.encode(), content, "sha1")
        return found | {"Signature": base64.b64encode(digest).decode()}


def parse_access_key(text: str) -> AccessKey:
    """Return the key of a file like the tools' conf/tools.yml.

    It has lines `accessKey: NAME` and `secretKey: SECRET`, and may have `securityToken: TOKEN`; `=` does for the colon.
    Raises BadRequest.
    """
    found = {parts[1]: parts[3] for line in text.splitlines() if (parts := _SETTING.fullmatch(line))}
    if not (found.get("accessKey") and found.get("secretKey")):
        raise BadRequest("the file of the access key needs the lines `accessKey: NAME` and `secretKey: SECRET`")
    return AccessKey(found["accessKey"], found["secretKey"], found.get("securityToken", ""))
