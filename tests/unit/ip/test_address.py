"""qtunnel.ip.address: one table for both families."""

from __future__ import annotations

import pytest

from qtunnel.ip.address import is_link_local, is_martian_destination, is_martian_source, is_multicast
from tests.unit.ip.packets import packed

# address, martian as a source, martian as a destination, link-local, multicast
TABLE = [
    ("0.0.0.0", True, True, False, False),
    ("0.255.255.255", True, True, False, False),
    ("1.0.0.0", False, False, False, False),
    ("10.0.0.1", False, False, False, False),
    ("126.255.255.255", False, False, False, False),
    ("127.0.0.1", True, True, False, False),
    ("128.0.0.0", False, False, False, False),
    ("169.253.255.255", False, False, False, False),
    ("169.254.0.1", False, False, True, False),
    ("169.255.0.0", False, False, False, False),
    ("198.18.0.1", False, False, False, False),
    ("223.255.255.255", False, False, False, False),
    ("224.0.0.1", True, False, True, True),
    ("224.0.1.0", True, False, False, True),
    ("239.255.255.255", True, False, False, True),
    ("240.0.0.0", True, True, False, False),
    ("255.255.255.254", True, True, False, False),
    ("255.255.255.255", True, True, True, False),
    ("::", True, True, False, False),
    ("::1", True, True, False, False),
    ("::10.0.0.1", True, True, False, False),
    ("::ffff:10.0.0.1", True, True, False, False),
    ("::1:0:0", False, False, False, False),
    ("64:ff9b::10.0.0.1", False, False, False, False),
    ("2001:db8::1", False, False, False, False),
    ("fd00::1", False, False, False, False),
    ("fe7f:ffff::1", False, False, False, False),
    ("fe80::1", False, False, True, False),
    ("febf:ffff::1", False, False, True, False),
    ("fec0::1", False, False, False, False),
    ("ff00::1", True, False, True, True),
    ("ff01::1", True, False, True, True),
    ("ff02::1", True, False, True, True),
    ("ff12::1", True, False, True, True),
    ("ff32::1", True, False, True, True),
    ("ff03::1", True, False, False, True),
    ("ff05::2", True, False, False, True),
    ("ff0e::1", True, False, False, True),
]


@pytest.mark.parametrize(("address", "source", "destination", "link_local", "multicast"), TABLE)
def test_every_boundary_of_the_special_ranges(
    address: str, source: bool, destination: bool, link_local: bool, multicast: bool
) -> None:
    bits = packed(address)
    found = (is_martian_source(bits), is_martian_destination(bits), is_link_local(bits), is_multicast(bits))
    assert found == (source, destination, link_local, multicast)
