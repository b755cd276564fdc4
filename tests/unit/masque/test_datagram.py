import pytest

from qtunnel.drops import DropCounts, DropReason
from qtunnel.errors import LocalProtocolError
from qtunnel.masque.datagram import CONTEXT_PREFIX, ContextAllocator, parse_datagram
from qtunnel.masque.varint import MAX_VARINT


def test_the_inner_packet_is_what_follows_context_0() -> None:
    drops = DropCounts()
    assert parse_datagram(CONTEXT_PREFIX + b"packet", drops) == b"packet"
    assert not drops


def test_each_datagram_without_a_packet_is_counted_by_its_reason() -> None:
    drops = DropCounts()
    for payload in (b"", b"\x80\x00", b"\x01x", b"\x3fx"):
        assert parse_datagram(payload, drops) is None
    assert drops == {DropReason.MALFORMED: 2, DropReason.UNKNOWN_CONTEXT: 2}


@pytest.mark.parametrize(("is_client", "last"), [(True, MAX_VARINT - 1), (False, MAX_VARINT)])
def test_context_ids_run_out(is_client: bool, last: int) -> None:
    allocator = ContextAllocator(is_client=is_client)
    allocator._next = last
    assert allocator.allocate() == last
    with pytest.raises(LocalProtocolError):
        allocator.allocate()
