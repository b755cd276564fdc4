import pytest
from aioquic.quic.packet import QuicErrorCode
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.errors import LocalProtocolError, PeerProtocolError
from qtunnel.quic.multipath.code_points import MAX_PATH_ID
from qtunnel.quic.multipath.path_ids import MAX_ALIVE, PathIds


def test_mpq_06_0_allows_no_further_path_and_the_limit_is_an_id() -> None:
    assert PathIds(local_max=0, peer_max=8).unused() == []
    assert PathIds(local_max=2, peer_max=8).unused() == [1, 2]
    assert PathIds(local_max=8, peer_max=2).issuable() == [0, 1, 2]


def test_mpq_33_a_path_id_is_never_used_again() -> None:
    ids = PathIds(local_max=2, peer_max=8)
    ids.use(1)
    assert ids.unused() == [2]
    ids.retire(1)
    assert ids.unused() == [2, 3]
    with pytest.raises(LocalProtocolError):
        ids.use(1)


def test_mpq_25_each_id_that_is_gone_raises_the_limit_by_one() -> None:
    ids = PathIds(local_max=3, peer_max=MAX_PATH_ID)
    for path_id in range(1, 10_000):
        ids.use(path_id)
        assert ids.retire(path_id)
        assert ids.local_max == 3 + path_id
        assert len(ids.unused()) == 3
        assert len(ids.alive) == 4
    assert not ids.retire(5)  # gone already


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(0, 8))
def test_mpq_46_as_many_ids_are_alive_as_at_first_whatever_the_order(gone: list[int], local_max: int) -> None:
    ids = PathIds(local_max=local_max, peer_max=MAX_PATH_ID)
    seen = set(ids.alive)
    for path_id in gone:
        before = ids.local_max
        rose = ids.retire(path_id)
        assert rose == (ids.local_max > before)
        assert len(ids.alive) == local_max + 1
        new = ids.alive - seen
        assert all(each > max(seen) for each in new)
        seen |= new


def test_the_last_path_id_of_all_is_not_followed_by_another() -> None:
    ids = PathIds(local_max=1, peer_max=8)
    ids.local_max = MAX_PATH_ID
    ids.alive = {0, MAX_PATH_ID}
    assert not ids.retire(MAX_PATH_ID)
    assert ids.alive == {0}


def test_mpq_24_an_id_above_our_limit_is_a_violation_and_one_that_is_gone_is_not() -> None:
    ids = PathIds(local_max=2, peer_max=8)
    ids.retire(1)
    assert not ids.is_alive(1)
    assert ids.is_alive(3)
    with pytest.raises(PeerProtocolError) as caught:
        ids.is_alive(4)
    assert caught.value.error_code == QuicErrorCode.PROTOCOL_VIOLATION


def test_mpq_38_max_path_id_raises_or_is_ignored() -> None:
    ids = PathIds(local_max=8, peer_max=2)
    assert ids.on_max_path_id(4)
    assert not ids.on_max_path_id(3)
    assert not ids.on_max_path_id(4)
    assert ids.usable_max == 4
    assert ids.on_max_path_id(MAX_PATH_ID)
    assert ids.usable_max == 8


@pytest.mark.parametrize("maximum", [1, MAX_PATH_ID + 1])
def test_mpq_38_max_path_id_below_the_parameter_or_above_32_bits_is_a_violation(maximum: int) -> None:
    with pytest.raises(PeerProtocolError) as caught:
        PathIds(local_max=8, peer_max=2).on_max_path_id(maximum)
    assert caught.value.error_code == QuicErrorCode.PROTOCOL_VIOLATION


def test_mpq_39_paths_blocked_above_our_limit_is_a_violation_but_for_peers_with_quirks() -> None:
    ids = PathIds(local_max=2, peer_max=2)
    ids.on_paths_blocked(2)
    ids.on_paths_blocked(8, is_lenient=True)
    assert ids.local_max == 2  # it informs
    with pytest.raises(PeerProtocolError) as caught:
        ids.on_paths_blocked(3)
    assert caught.value.error_code == QuicErrorCode.PROTOCOL_VIOLATION


@pytest.mark.parametrize("local_max", [-1, MAX_ALIVE])
def test_mpq_46_the_first_limit_is_bounded(local_max: int) -> None:
    with pytest.raises(LocalProtocolError):
        PathIds(local_max=local_max, peer_max=2)
