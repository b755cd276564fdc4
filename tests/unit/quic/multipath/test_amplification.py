from hypothesis import given
from hypothesis import strategies as st

from qtunnel.quic.multipath.amplification import AddressAllowance


def test_a_validated_address_has_no_limit() -> None:
    allowance = AddressAllowance(is_validated=True)
    allowance.on_sent(10_000_000)
    assert allowance.left() is None


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 1500)), max_size=60))
def test_mpq_14_no_more_than_three_times_what_came_is_sent(steps: list[tuple[bool, int]]) -> None:
    allowance = AddressAllowance()
    received = sent = 0
    for is_received, size in steps:
        left = allowance.left()
        assert left == 3 * received - sent
        if is_received:
            allowance.on_received(size)
            received += size
        elif size <= left:
            allowance.on_sent(size)
            sent += size
    assert sent <= 3 * received
