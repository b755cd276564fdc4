import itertools

import pytest
from aioquic.quic.packet import QuicErrorCode
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.errors import PeerProtocolError
from qtunnel.quic.multipath.frames import NewConnectionId
from qtunnel.quic.multipath.local_cids import SPARE, LocalCids


class Issuer:
    def __init__(self, peer_limit: int = 8) -> None:
        count = itertools.count(1)
        self.retired: list[bytes] = []
        self.cids = LocalCids(
            new_cid=lambda: next(count).to_bytes(4),
            reset_token=lambda cid: cid * 4,
            peer_limit=peer_limit,
            on_retired=self.retired.append,
        )


def test_mpq_22_mpq_23_every_path_gets_a_cid_and_a_spare_one_numbered_from_0() -> None:
    issuer = Issuer()
    frames = list(issuer.cids.replenish([0, 1, 2]))
    assert [(frame.path_id, frame.sequence) for frame in frames] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
    ]
    assert len({frame.connection_id for frame in frames}) == 6
    assert all(frame.reset_token == frame.connection_id * 4 for frame in frames)
    assert issuer.cids.path_of == {frame.connection_id: frame.path_id for frame in frames}
    assert list(issuer.cids.replenish([0, 1, 2])) == []


def test_mpq_07_no_more_than_the_peer_takes_for_each_path() -> None:
    assert len(list(Issuer(peer_limit=1).cids.replenish([1, 2]))) == 2


def test_mpq_23_an_id_that_is_in_use_is_not_issued_again() -> None:
    drawn = iter([b"aaaa", b"aaaa", b"bbbb", b"bbbb", b"aaaa", b"cccc", b"dddd"])
    cids = LocalCids(
        new_cid=lambda: next(drawn), reset_token=lambda cid: cid, peer_limit=2, on_retired=lambda _: None
    )
    assert [frame.connection_id for frame in cids.replenish([1, 2])] == [b"aaaa", b"bbbb", b"cccc", b"dddd"]


def test_mpq_26_a_retired_cid_is_replaced_on_its_path_alone() -> None:
    issuer = Issuer()
    first = {(frame.path_id, frame.sequence): frame for frame in issuer.cids.replenish([1, 2])}
    issuer.cids.on_retire(1, 0, received_by=first[2, 0].connection_id)
    assert issuer.retired == [first[1, 0].connection_id]
    assert not issuer.cids.is_active(first[1, 0])
    assert issuer.cids.is_active(first[2, 0])
    assert [(frame.path_id, frame.sequence) for frame in issuer.cids.replenish([1, 2])] == [(1, 2)]
    issuer.cids.on_retire(1, 0, received_by=b"")  # the frame came twice
    assert issuer.retired == [first[1, 0].connection_id]


@pytest.mark.parametrize(("path_id", "sequence"), [(1, 2), (3, 0)])
def test_retiring_what_was_not_issued_is_a_violation(path_id: int, sequence: int) -> None:
    issuer = Issuer()
    list(issuer.cids.replenish([1, 2]))
    with pytest.raises(PeerProtocolError) as caught:
        issuer.cids.on_retire(path_id, sequence, received_by=b"")
    assert caught.value.error_code == QuicErrorCode.PROTOCOL_VIOLATION


def test_retiring_the_cid_the_packet_came_by_is_a_violation() -> None:
    issuer = Issuer()
    frame = next(issuer.cids.replenish([1]))
    with pytest.raises(PeerProtocolError) as caught:
        issuer.cids.on_retire(1, 0, received_by=frame.connection_id)
    assert caught.value.error_code == QuicErrorCode.PROTOCOL_VIOLATION


def test_mpq_39_a_peer_blocked_at_a_cid_still_to_come_is_in_the_wrong() -> None:
    issuer = Issuer()
    list(issuer.cids.replenish([1]))
    issuer.cids.check_blocked(1, 2)
    issuer.cids.check_blocked(2, 0)
    for path_id, sequence in ((1, 3), (2, 1)):
        with pytest.raises(PeerProtocolError) as caught:
            issuer.cids.check_blocked(path_id, sequence)
        assert caught.value.error_code == QuicErrorCode.PROTOCOL_VIOLATION


def test_cids_of_the_handshake_are_taken_over() -> None:
    issuer = Issuer()
    issuer.cids.adopt(0, [(0, b"0000"), (3, b"3333")])
    assert list(issuer.cids.replenish([0])) == []
    assert issuer.cids.path_of == {b"0000": 0, b"3333": 0}
    issuer.cids.on_retire(0, 0, received_by=b"3333")
    assert [frame.sequence for frame in issuer.cids.replenish([0])] == [4]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=60))
def test_whatever_is_retired_two_stay_and_all_are_known(retired: list[tuple[int, int]]) -> None:
    issuer = Issuer()
    issued: dict[bytes, NewConnectionId] = {}

    def replenish() -> None:
        for frame in issuer.cids.replenish(range(4)):
            assert frame.connection_id not in issued
            issued[frame.connection_id] = frame

    replenish()
    for path_id, back in retired:
        newest = max(frame.sequence for frame in issued.values() if frame.path_id == path_id)
        issuer.cids.on_retire(path_id, max(0, newest - back), received_by=b"")
        replenish()
        assert len(issuer.cids.path_of) == 4 * SPARE
        assert set(issuer.retired) | set(issuer.cids.path_of) == set(issued)
    issuer.cids.drop_path(2)
    assert set(issuer.cids.path_of.values()) == {0, 1, 3}
