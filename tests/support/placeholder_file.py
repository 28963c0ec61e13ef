"""The log file in which tests write placeholders, and what a broker stored around them."""

from __future__ import annotations

from rmqctl.operations.placeholder.record import Surroundings

AT = 65536
FILE_END = 2 * AT
NOW = 1_795_252_516_848
AROUND = Surroundings(bytes([192, 168, 7, 9, 0, 0, 42, 159]), NOW, NOW + 5000, property_crc=False, long_topics=True)
