from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.format import host
from rmqctl.format.host import Host
from tests.support.property_settings import PROPERTY

V4 = Host(bytes([192, 168, 7, 9]), 10911)
V6 = Host(bytes.fromhex("20010db8000000000000000000000001"), 10911)
HOSTS = st.builds(
    Host, st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16), st.integers(-(2**31), 2**31 - 1)
)


def test_an_ipv4_host_is_shown_with_its_port() -> None:
    assert str(V4) == "192.168.7.9:10911"


def test_an_ipv6_host_is_shown_in_brackets() -> None:
    assert str(V6) == "[2001:db8::1]:10911"


def test_eight_bytes_are_an_ipv4_host() -> None:
    assert host.decode(bytes([192, 168, 7, 9, 0, 0, 42, 159])) == V4


def test_twenty_bytes_are_an_ipv6_host() -> None:
    assert host.decode(V6.address + bytes([0, 0, 42, 159])) == V6


def test_a_msg_id_is_host_port_and_offset_in_upper_case_hex() -> None:
    assert host.msg_id(V4, 38209) == "C0A8070900002A9F0000000000009541"


def test_a_msg_id_of_an_ipv6_broker_has_56_digits() -> None:
    assert host.msg_id(V6, 1) == "20010DB8000000000000000000000001" + "00002A9F" + "0000000000000001"


@PROPERTY
@given(HOSTS, st.integers(0, 2**63 - 1))
def test_a_msg_id_is_read_back(store_host: Host, physical_offset: int) -> None:
    assert host.parse_msg_id(host.msg_id(store_host, physical_offset)) == (store_host, physical_offset)


def test_a_msg_id_in_lower_case_is_read() -> None:
    assert host.parse_msg_id("c0a8070900002a9f0000000000009541") == (V4, 38209)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "hex digits"),
        ("C0A8", "hex digits"),
        (" " * 32, "hex digits"),
        ("C0A8070900002A9F00000000000095410", "hex digits"),
        ("X0A8070900002A9F0000000000009541", "hex digits"),
        ("C0A8070900002A9FFFFFFFFFFFFFFFFF", "negative"),
    ],
)
def test_what_is_no_msg_id_is_a_value_error(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        host.parse_msg_id(text)
