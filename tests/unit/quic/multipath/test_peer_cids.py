import random

import pytest
from aioquic.quic.packet import QuicErrorCode
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.errors import PeerProtocolError
from qtunnel.quic.multipath.frames import NewConnectionId, PathCidsBlocked, RetireConnectionId
from qtunnel.quic.multipath.peer_cids import PeerCids


def issued(path_id: int, sequence: int, retire_prior_to: int = 0) -> NewConnectionId:
    cid = b"%c%c%c" % (path_id, sequence >> 8, sequence & 0xFF)
    return NewConnectionId(path_id, sequence, retire_prior_to, cid, cid.ljust(16, b"t"))


def fails(cids: PeerCids, frame: NewConnectionId) -> int:
    with pytest.raises(PeerProtocolError) as caught:
        cids.receive(frame)
    return caught.value.error_code


def test_mpq_13_a_path_is_addressed_by_a_cid_of_its_own() -> None:
    cids = PeerCids(limit=8)
    assert cids.current(1) is None
    for path_id in (2, 1):
        for sequence in (1, 0):
            assert cids.receive(issued(path_id, sequence)) == []
    assert cids.current(1) == issued(1, 0).connection_id
    assert cids.current(2) == issued(2, 0).connection_id
    assert cids.current(1) == issued(1, 0).connection_id
    assert cids.reset_tokens() == [issued(2, 0).reset_token, issued(1, 0).reset_token]


def test_mpq_26_a_cid_is_changed_for_another_of_its_path_and_the_old_one_retired() -> None:
    cids = PeerCids(limit=8)
    cids.receive(issued(1, 0))
    cids.receive(issued(2, 0))
    assert cids.current(1) is not None
    assert cids.change(1) == PathCidsBlocked(1, 1)  # there is none of path 1
    assert cids.current(1) == issued(1, 0).connection_id
    cids.receive(issued(1, 1))
    assert cids.has_unused(1)
    assert cids.change(1) == RetireConnectionId(1, 0)
    assert cids.current(1) == issued(1, 1).connection_id
    assert not cids.has_unused(1)
    assert cids.blocked(1) == PathCidsBlocked(1, 2)
    assert cids.blocked(7) == PathCidsBlocked(7, 0)


def test_a_cid_that_came_twice_is_one_also_when_it_is_retired() -> None:
    cids = PeerCids(limit=2)
    for _ in range(3):
        cids.receive(issued(1, 0))
    cids.receive(issued(1, 1))
    assert cids.current(1) is not None
    cids.change(1)
    cids.receive(issued(1, 0))
    assert not cids.has_unused(1)


def test_mpq_37_retire_prior_to_is_about_its_path_alone() -> None:
    cids = PeerCids(limit=8)
    for path_id in (1, 2):
        cids.receive(issued(path_id, 0))
        cids.receive(issued(path_id, 1))
        assert cids.current(path_id) is not None
    assert cids.receive(issued(1, 2, 2)) == [RetireConnectionId(1, 0), RetireConnectionId(1, 1)]
    assert cids.current(1) == issued(1, 2).connection_id
    assert cids.current(2) == issued(2, 0).connection_id


def test_a_cid_below_retire_prior_to_that_comes_late_is_not_used() -> None:
    cids = PeerCids(limit=8)
    retired = cids.receive(issued(1, 3, 2))
    assert retired == [RetireConnectionId(1, 0), RetireConnectionId(1, 1)]
    assert cids.receive(issued(1, 0)) == []
    assert cids.current(1) == issued(1, 3).connection_id


def test_mpq_07_the_limit_holds_for_each_path() -> None:
    cids = PeerCids(limit=2)
    for path_id in (1, 2, 3):
        cids.receive(issued(path_id, 0))
        cids.receive(issued(path_id, 1))
    assert fails(cids, issued(2, 2)) == QuicErrorCode.CONNECTION_ID_LIMIT_ERROR


def test_numbers_that_were_left_out_count_as_issued() -> None:
    assert fails(PeerCids(limit=8), issued(1, 8)) == QuicErrorCode.CONNECTION_ID_LIMIT_ERROR
    cids = PeerCids(limit=8)
    cids.receive(issued(1, 7))
    assert cids.current(1) == issued(1, 7).connection_id


def test_a_cid_may_be_at_one_place_only() -> None:
    cids = PeerCids(limit=8)
    cids.receive(issued(1, 0))
    other_path = issued(1, 0)._replace(path_id=2)
    other_number = issued(1, 0)._replace(sequence=1)
    other_token = issued(1, 0)._replace(reset_token=bytes(16))
    other_cid = issued(1, 0)._replace(connection_id=b"xyz")
    for frame in (other_path, other_number, other_token, other_cid):
        assert fails(cids, frame) == QuicErrorCode.PROTOCOL_VIOLATION


def test_retired_cids_that_nobody_acknowledges_have_a_bound() -> None:
    cids = PeerCids(limit=2)
    for sequence in range(9):
        cids.receive(issued(1, sequence, sequence))
    assert fails(cids, issued(1, 9, 9)) == QuicErrorCode.CONNECTION_ID_LIMIT_ERROR
    acknowledged = PeerCids(limit=2)
    for sequence in range(250):
        for frame in acknowledged.receive(issued(1, sequence, sequence)):
            acknowledged.on_retire_acknowledged(frame)


def test_a_leap_of_retire_prior_to_costs_nothing() -> None:
    frame = NewConnectionId(1, 1 << 60, 1 << 60, b"abcd", bytes(16))
    assert fails(PeerCids(limit=8), frame) == QuicErrorCode.CONNECTION_ID_LIMIT_ERROR


def test_mpq_29_ids_of_an_abandoned_path_are_gone_with_their_tokens() -> None:
    cids = PeerCids(limit=8)
    cids.receive(issued(1, 0))
    cids.receive(issued(2, 0))
    assert cids.current(1)
    assert cids.current(2)
    cids.drop_path(1)
    assert cids.current(1) is None
    assert cids.reset_tokens() == [issued(2, 0).reset_token]


@given(st.integers(0, 1 << 32), st.integers(1, 60))
def test_a_peer_that_plays_along_is_never_refused_and_never_runs_dry(seed: int, rounds: int) -> None:
    """It replaces what we retire; its frames come in any order, some twice."""
    dice = random.Random(seed)
    cids = PeerCids(limit=4)
    following = 4
    under_way = [issued(1, sequence) for sequence in range(4)]
    dice.shuffle(under_way)
    seen: set[bytes] = set()
    for _ in range(rounds):
        for frame in under_way:
            cids.receive(frame)
            if dice.random() < 0.3:
                cids.receive(frame)
        under_way = []
        for _ in range(dice.randint(1, 3)):
            now = cids.current(1)
            assert now is not None
            seen.add(now)
            old = cids.change(1)
            if isinstance(old, RetireConnectionId):
                cids.on_retire_acknowledged(old)
                under_way.append(issued(1, following))
                following += 1
                assert cids.current(1) not in seen
        dice.shuffle(under_way)
