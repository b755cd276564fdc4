"""qtunnel.recovery.results."""

from __future__ import annotations

import pytest

from qtunnel.recovery.results import AckResult, DiscardResult, TimeoutResult


@pytest.mark.parametrize("kind", [AckResult, TimeoutResult, DiscardResult])
def test_a_fresh_result_says_nothing_and_shares_nothing(kind: type) -> None:
    one, other = kind(), kind()
    assert one == other
    for name in one.__slots__:
        value = getattr(one, name)
        assert not value
        assert not isinstance(value, list) or value is not getattr(other, name)


def test_ack_and_timeout_tell_losses_in_the_same_words() -> None:
    for result in (AckResult(), TimeoutResult()):
        assert (result.lost, result.lost_bytes) == (0, 0)
        assert result.lost_payloads == result.lost_probes == result.lost_sizes == []
    assert repr(TimeoutResult()).startswith("TimeoutResult(lost_payloads=[], lost=0")
