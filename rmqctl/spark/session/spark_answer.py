"""Check whether a Spark server answers at a URL.

The check runs before a client of Spark connects, because Spark's client retries for minutes if no server answers.
"""

from __future__ import annotations

import socket
import struct
from urllib.parse import SplitResult, urlsplit

from rmqctl.errors import Unreadable

CONNECT_SECONDS = 10  # to connect; then the same time for the first bytes of an answer
MASTER, CONNECT = "spark", "sc"
_PORTS = {MASTER: 7077, CONNECT: 15002}
_FILE = b"/files/rmqctl"
_STREAM_REQUEST = 6
# requests that a server answers at once and does not log: for a master, a file that it does not have; for a Connect
# server, the HTTP/2 settings
_WORDS = {
    MASTER: struct.pack(">qBi", 13 + len(_FILE), _STREAM_REQUEST, len(_FILE)) + _FILE,
    CONNECT: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]),
}
_WEB_PAGE = b"HTTP/"


def check_answers(url: str) -> None:
    """Raise Unreadable if no host of `url` answers.

    Only the URLs of a master (spark://a:7077,b:7077) and of a Connect server (sc://host) are checked.
    """
    scheme = urlsplit(url).scheme
    whys = (
        [_why_not(urlsplit(one if "//" in one else f"{scheme}://{one}")) for one in url.split(",")]
        if scheme in _PORTS
        else [""]
    )
    if all(whys):
        raise Unreadable(f"no Spark answers there: {whys[-1]}", path=url)


def _why_not(place: SplitResult) -> str:
    """Return the reason why no Spark server answers at a host and port.

    The result is empty if a Spark server answers. If the host closes the connection, the result is empty, because
    Spark's client can then report the reason.
    """
    try:
        with socket.create_connection(
            (place.hostname or "", place.port or _PORTS[place.scheme]), CONNECT_SECONDS
        ) as connection:
            connection.sendall(_WORDS[place.scheme])
            said = connection.recv(len(_WEB_PAGE))
    except TimeoutError:
        return f"not a word within {CONNECT_SECONDS} s"
    except ConnectionResetError:
        return ""
    except (OSError, ValueError) as error:  # ValueError: no port can have that number
        return (error.strerror if isinstance(error, OSError) else None) or str(error)
    return "a web page is there" if said == _WEB_PAGE else ""
