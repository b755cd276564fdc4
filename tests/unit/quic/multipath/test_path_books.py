from qtunnel.quic.multipath.frames import (
    MaxPathId,
    NewConnectionId,
    PathAbandon,
    PathCidsBlocked,
    PathsBlocked,
    RetireConnectionId,
)
from qtunnel.quic.multipath.path_books import PathBooks
from tests.unit.quic.multipath.path_pair import End


def books(*, local_max: int = 3, peer_max: int = 3) -> PathBooks:
    books = End(is_client=True, local_max=local_max, peer_max=peer_max).paths.books
    books.replenish()
    books.outbox.take(10_000)
    return books


def issued(path_id: int, sequence: int = 0) -> NewConnectionId:
    return NewConnectionId(path_id, sequence, 0, b"p%c%c" % (path_id, sequence), bytes(16))


def test_mpq_12_a_path_id_is_taken_when_both_ends_have_issued_ids_for_it() -> None:
    under_test = books()
    assert under_test.take_unused() is None
    assert under_test.outbox.take(1000) == [PathCidsBlocked(1, 0)]
    assert not under_test.can_open_again()
    under_test.receive(issued(2), b"")
    assert under_test.can_open_again()
    assert not under_test.can_open_again()
    assert under_test.take_unused() == 2


def test_mpq_25_when_the_peers_limit_is_reached_it_is_told_until_it_is_not_true_any_more() -> None:
    under_test = books(peer_max=0)
    assert under_test.take_unused() is None
    assert under_test.outbox.take(1000) == [PathsBlocked(0)]
    under_test.outbox.on_lost(PathsBlocked(0))
    assert under_test.outbox.take(1000) == [PathsBlocked(0)]
    under_test.receive(MaxPathId(1), b"")
    under_test.outbox.take(1000)
    under_test.outbox.on_lost(PathsBlocked(0))
    assert len(under_test.outbox) == 0


def test_mpq_23_a_raised_limit_is_answered_with_connection_ids() -> None:
    under_test = books(peer_max=0)
    under_test.receive(MaxPathId(2), b"")
    frames = under_test.outbox.take(10_000)
    assert [(frame.path_id, frame.sequence) for frame in frames if isinstance(frame, NewConnectionId)] == [
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
    ]


def test_mpq_29_what_waits_for_an_abandoned_path_is_not_sent() -> None:
    under_test = books()
    under_test.ids.use(1)
    retire = RetireConnectionId(1, 0)
    under_test.outbox.put(retire)
    under_test.stop(1, 7)
    under_test.outbox.on_lost(retire)
    under_test.receive(issued(1), b"")
    assert not under_test.peer_cids.has_unused(1)
    assert under_test.outbox.take(1000) == [PathAbandon(1, 7)]
    under_test.outbox.on_lost(PathAbandon(1, 7))
    assert under_test.outbox.take(1000) == [PathAbandon(1, 7)]


def test_mpq_25_mpq_38_a_path_that_is_gone_gives_the_peer_another_id_and_the_newest_limit_is_sent_again() -> None:
    under_test = books(peer_max=9)
    for path_id in (1, 2):
        under_test.ids.use(path_id)
        under_test.stop(path_id, 0)
        under_test.close(path_id)
    frames = under_test.outbox.take(10_000)
    assert [frame for frame in frames if isinstance(frame, MaxPathId)] == [MaxPathId(5)]
    assert {frame.path_id for frame in frames if isinstance(frame, NewConnectionId)} == {4, 5}
    under_test.outbox.on_lost(MaxPathId(4))
    assert len(under_test.outbox) == 0
    under_test.outbox.on_lost(MaxPathId(5))
    assert under_test.outbox.take(1000) == [MaxPathId(5)]
