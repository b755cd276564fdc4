"""Both ends' books together; single modules have their own tests."""

from __future__ import annotations

import pytest
from aioquic.quic.packet import QuicErrorCode

from qtunnel.errors import LocalProtocolError, PeerProtocolError
from qtunnel.quic.multipath.code_points import PathError
from qtunnel.quic.multipath.frames import (
    MaxPathId,
    NewConnectionId,
    PathAbandon,
    PathCidsBlocked,
    PathsBlocked,
    PathStatus,
    RetireConnectionId,
)
from qtunnel.quic.multipath.path_migration import Move
from qtunnel.quic.multipath.path_record import NoPathLeft, PathMoved, PathsAvailable
from qtunnel.quic.multipath.path_state import PathState
from qtunnel.quic.multipath.path_validation import INITIAL_PTO
from tests.unit.quic.multipath.path_pair import SERVER, PathPair


def opened(pair: PathPair, **options: bool) -> int:
    path_id = pair.client.paths.open(SERVER, pair.now, **options)
    assert path_id is not None
    pair.settle(0.3)
    return path_id


def test_mpq_12_mpq_13_mpq_14_a_path_is_opened_and_validated_by_both_ends() -> None:
    pair = PathPair()
    assert opened(pair) == 1
    for end in (pair.client, pair.server):
        assert end.history(1) == [PathState.OPENING, PathState.VALIDATING, PathState.ACTIVE]
        assert end.state(0) is PathState.ACTIVE
    assert opened(pair) == 2
    assert [size for _, _, _, size in pair.probing] == [1200] * 8  # two challenges and answers for each path


def test_mpq_12_a_server_opens_no_path_and_a_client_none_without_ids() -> None:
    pair = PathPair(client_max=8, server_max=0)
    with pytest.raises(LocalProtocolError):
        pair.server.paths.open(SERVER, pair.now)
    assert pair.client.paths.open(SERVER, pair.now) is None
    pair.flush()
    assert pair.frames[-1] == (True, PathsBlocked(0))


def test_mpq_15_a_challenge_is_answered_on_its_path_and_to_where_it_came_from() -> None:
    pair = PathPair()
    opened(pair)
    elsewhere = ("198.51.100.9", 9)
    pair.server.paths.on_challenge(1, b"12345678", elsewhere, 1200)
    (probing,) = pair.server.paths.probing_to_send(pair.now)
    assert (probing.path_id, probing.remote, probing.frames) == (1, elsewhere, b"\x1b12345678")
    pair.server.paths.on_challenge(1, b"12345678", elsewhere, 300)
    (short,) = pair.server.paths.probing_to_send(pair.now)
    assert short.size == 0  # 1200 bytes would be more than three times what came


def test_mpq_16_a_path_may_begin_without_a_challenge() -> None:
    pair = PathPair()
    cid = pair.client.paths.books.peer_cids.current(2)
    pair.packet(2, cid=cid)
    assert pair.server.state(2) in (PathState.OPENING, PathState.VALIDATING)
    assert pair.server.state(0) is PathState.ACTIVE


def test_mpq_14_mpq_17_a_server_sends_a_new_address_at_most_three_times_what_came() -> None:
    pair = PathPair()
    pair.up[1] = False  # what the server sends goes nowhere
    pair.packet(1, size=450)
    pair.settle(2.5)
    sent = [max(size, 60) for is_client, path_id, _, size in pair.probing if not is_client and path_id == 1]
    assert sent
    assert sum(sent) <= 3 * 450
    assert 1200 in sent


def test_mpq_18_a_path_that_does_not_answer_is_abandoned_by_name_and_its_id_is_spent() -> None:
    pair = PathPair()
    pair.up[1] = False
    path_id = pair.client.paths.open(SERVER, pair.now)
    assert path_id == 1
    pair.settle(3 * INITIAL_PTO + 0.1)
    assert pair.client.history(1) == [PathState.OPENING, PathState.VALIDATING, PathState.ABANDONING]
    assert (True, PathAbandon(1, PathError.PATH_UNSTABLE_OR_POOR)) in pair.frames
    assert pair.client.paths.open(SERVER, pair.now) == 2


def test_mpq_19_a_rebinding_of_one_path_leaves_the_other_alone() -> None:
    pair = PathPair()
    opened(pair)
    pair.remote_of[1] = ("192.0.2.2", 5555)
    pair.packet(1)
    assert pair.server.of(PathMoved) == [PathMoved(1, Move.PORT, ("192.0.2.2", 5555))]
    record = pair.server.paths.records[1]
    assert record.migration is not None
    assert not record.migration.current.allowance.is_validated
    pair.settle(0.2)
    assert record.migration.current.allowance.is_validated
    assert record.state is PathState.ACTIVE
    other = pair.server.paths.records[0].migration
    assert other is not None
    assert other.moves == 0


def test_mpq_19_a_migration_with_another_cid_is_answered_with_another_of_the_same_path() -> None:
    pair = PathPair()
    opened(pair)
    before = pair.server.paths.books.peer_cids.current(1)
    pair.client.paths.move(1, pair.now, local="192.0.2.77")
    pair.remote_of[1] = ("192.0.2.77", 4000)
    pair.packet(1)
    after = pair.server.paths.books.peer_cids.current(1)
    assert before != after
    assert pair.client.paths.books.local_cids.path_of[after or b""] == 1
    pair.settle()
    assert (True, RetireConnectionId(1, 0)) in pair.frames
    assert (False, RetireConnectionId(1, 0)) in pair.frames
    assert pair.client.state(1) is pair.server.state(1) is PathState.ACTIVE


def test_a_false_rebinding_leads_back_to_the_validated_address() -> None:
    pair = PathPair()
    opened(pair)
    true = pair.remote_of[1]
    pair.remote_of[1] = ("198.51.100.66", 1)
    pair.packet(1)
    pair.up[1] = False
    pair.remote_of[1] = true
    pair.settle(3 * INITIAL_PTO + 0.5)
    assert [moved.remote for moved in pair.server.of(PathMoved)] == [("198.51.100.66", 1), true]
    assert pair.server.state(1) is PathState.ACTIVE


@pytest.mark.seeds(ci=5, long=100)
def test_a_nat_that_rebinds_every_second_is_followed_for_ten_minutes_without_growth(seed: int) -> None:
    pair = PathPair(loss=0.05, seed=seed)
    opened(pair)
    pair.settle(2.0)
    assert pair.server.state(1) is PathState.ACTIVE
    for second in range(600):
        pair.remote_of[1] = ("192.0.2.2", 10_000 + second)
        pair.packet(1)
        pair.settle(1.0)
    assert pair.server.state(1) is PathState.ACTIVE
    assert len(pair.server.of(PathMoved)) == 600
    assert sorted(pair.server.paths.records) == [0, 1]


def test_mpq_29_mpq_30_mpq_31_mpq_32_an_abandoned_path_is_answered_and_known_for_three_pto() -> None:
    pair = PathPair()
    opened(pair)
    for end in (pair.client, pair.server):
        for record in end.paths.records.values():
            record.pto = 0.2
    began = pair.now
    ours = [cid for cid, path_id in pair.server.paths.books.local_cids.path_of.items() if path_id == 1]
    pair.client.paths.abandon(1, pair.now, PathError.APPLICATION_ABANDON_PATH)
    assert pair.client.paths.books.peer_cids.current(1) is None
    pair.settle(0.1)
    abandons = [(by_client, frame) for by_client, frame in pair.frames if isinstance(frame, PathAbandon)]
    assert abandons == [
        (True, PathAbandon(1, PathError.APPLICATION_ABANDON_PATH)),
        (False, PathAbandon(1, PathError.NO_ERROR)),
    ]
    assert pair.server.state(1) is PathState.ABANDONING
    assert all(cid in pair.server.paths.books.local_cids.path_of for cid in ours)
    pair.run_until(lambda: pair.server.state(1) is None, pair.now + 5)
    assert 0.6 <= pair.now - began <= 0.7
    assert set(ours) <= set(pair.server.forgotten)


def test_mpq_29_path_0_is_nothing_special() -> None:
    pair = PathPair()
    opened(pair)
    pair.client.paths.abandon(0, pair.now)
    pair.settle(5.0)
    assert sorted(pair.client.paths.records) == sorted(pair.server.paths.records) == [1]
    assert pair.client.paths.max_pto() == INITIAL_PTO
    assert opened(pair) == 2


def test_a_path_whose_abandonment_is_not_answered_is_closed_some_time() -> None:
    pair = PathPair()
    opened(pair)
    pair.up = {0: False, 1: False}
    pair.client.paths.abandon(1, pair.now)
    pair.settle(9.0)
    assert pair.client.state(1) is PathState.ABANDONING
    pair.settle(2.0)
    assert pair.client.state(1) is None


def test_mpq_31_an_abandoned_path_that_was_never_used_is_answered_too() -> None:
    pair = PathPair()
    pair.server.paths.receive(PathAbandon(2, 0), pair.now)
    pair.flush()
    assert pair.frames[-1] == (False, PathAbandon(2, 0))
    pair.server.paths.receive(PathAbandon(2, 0), pair.now)  # it came twice
    pair.flush()
    assert [frame for by_client, frame in pair.frames if isinstance(frame, PathAbandon)] == [PathAbandon(2, 0)]
    pair.settle(5.0)
    assert pair.server.paths.books.ids.alive == {0, 1, 3, 4}
    assert (False, MaxPathId(4)) in pair.frames


def test_mpq_34_when_the_last_path_is_gone_a_client_is_told_at_once_and_a_server_a_pto_later() -> None:
    pair = PathPair()
    pair.client.paths.abandon(0, pair.now)
    pair.client.paths.handle_timer(pair.now)
    pair.flush()
    assert pair.client.of(NoPathLeft) == [NoPathLeft()]
    pair.server.paths.receive(PathAbandon(0, 0), pair.now)
    pair.server.paths.handle_timer(pair.now + INITIAL_PTO - 0.01)
    pair.flush()
    assert pair.server.of(NoPathLeft) == []
    pair.server.paths.handle_timer(pair.now + INITIAL_PTO)
    pair.flush()
    assert pair.server.of(NoPathLeft) == [NoPathLeft()]


def test_mpq_34_a_client_may_open_another_path_in_place_of_its_last() -> None:
    pair = PathPair()
    assert pair.client.paths.open(SERVER, pair.now) == 1
    pair.client.paths.abandon(0, pair.now)
    pair.settle(5.0)
    assert pair.server.state(1) is PathState.ACTIVE
    assert pair.server.of(NoPathLeft) == pair.client.of(NoPathLeft) == []


def test_mpq_36_frames_about_paths_that_are_gone_are_ignored() -> None:
    pair = PathPair()
    opened(pair)
    pair.client.paths.abandon(1, pair.now)
    pair.settle(20.0)
    known = dict(pair.server.paths.books.local_cids.path_of)
    for frame in (
        PathAbandon(1, 0),
        PathStatus(1, 9, True),
        NewConnectionId(1, 5, 0, b"late", bytes(16)),
        RetireConnectionId(1, 77),
        PathCidsBlocked(1, 99),
    ):
        pair.server.paths.receive(frame, pair.now)
    assert pair.server.paths.books.local_cids.path_of == known
    assert 1 not in pair.server.paths.records
    assert not pair.server.paths.books.peer_cids.has_unused(1)


@pytest.mark.parametrize(
    "frame",
    [
        PathAbandon(4, 0),
        PathStatus(4, 1, True),
        NewConnectionId(4, 0, 0, b"abcd", bytes(16)),
        RetireConnectionId(4, 0),
        PathCidsBlocked(4, 0),
        PathsBlocked(4),
    ],
)
def test_mpq_24_a_frame_about_a_path_above_our_limit_is_a_violation(frame: PathAbandon) -> None:
    with pytest.raises(PeerProtocolError) as caught:
        PathPair().server.paths.receive(frame, 1000.0)
    assert caught.value.error_code == QuicErrorCode.PROTOCOL_VIOLATION


def test_mpq_24_no_frame_of_ours_names_a_path_above_the_peers_limit() -> None:
    pair = PathPair(client_max=1, server_max=6)
    for end, limit in ((pair.client, 6), (pair.server, 1)):
        named = [frame.path_id for by, frame in pair.frames if (end is pair.client) == by]  # type: ignore[union-attr]
        assert named
        assert max(named) <= limit


def test_mpq_23_both_ends_issue_two_ids_for_each_path_up_to_the_lower_limit() -> None:
    pair = PathPair(client_max=2, server_max=6)
    for end in (pair.client, pair.server):
        by_path = sorted(end.paths.books.local_cids.path_of.values())
        assert by_path == [0, 0, 1, 1, 2, 2]


@pytest.mark.seeds(ci=4, long=50)
def test_mpq_25_a_path_that_flaps_two_hundred_times_always_comes_back_and_nothing_grows(seed: int) -> None:
    """The link goes, sometimes before the path was validated; a new path is opened when it is back."""
    pair = PathPair(loss=0.1, seed=seed)
    for _ in range(200):
        pair.up.clear()
        path_id = pair.client.paths.open(SERVER, pair.now)
        if path_id is None:
            pair.run_until(lambda: bool(pair.client.of(PathsAvailable)), pair.now + 20)
            pair.client.events.clear()
            path_id = pair.client.paths.open(SERVER, pair.now)
        assert path_id is not None, f"seed {seed}"
        if pair.dice.random() < 0.3:
            pair.up[path_id] = False
        pair.settle(0.5 + pair.dice.random() * 4)
        pair.up[path_id] = False
        if pair.client.state(path_id) is not None and pair.client.paths.records[path_id].is_open:
            pair.client.paths.abandon(path_id, pair.now)
        pair.settle(pair.dice.random())
    pair.settle(40.0)
    for end in (pair.client, pair.server):
        assert sorted(end.paths.records) == [0]
        assert len(end.paths.books.ids.alive) == 4
        assert len(end.paths.books.local_cids.path_of) == 8
        assert len(end.paths.books.outbox) == 0
        assert end.paths.books.ids.local_max == end.paths.books.ids.peer_max > 150


def test_mpq_25_a_client_that_ran_out_is_told_when_it_can_open_again() -> None:
    pair = PathPair(client_max=1, server_max=1)
    assert opened(pair) == 1
    assert pair.client.paths.open(SERVER, pair.now) is None
    pair.settle(0.1)
    assert (True, PathsBlocked(1)) in pair.frames
    pair.client.paths.abandon(1, pair.now)
    pair.run_until(lambda: bool(pair.client.of(PathsAvailable)), pair.now + 20)
    assert pair.client.of(PathsAvailable) == [PathsAvailable()]
    assert opened(pair) == 2


def test_mpq_26_ids_are_replaced_as_they_are_retired() -> None:
    pair = PathPair()
    opened(pair)
    seen = set()
    for _ in range(50):
        pair.client.paths.move(1, pair.now, local="192.0.2.1")
        pair.settle(0.5)
        seen.add(pair.client.paths.books.peer_cids.current(1))
    assert len(seen) == 50
    assert pair.client.state(1) is pair.server.state(1) is PathState.ACTIVE


def test_mpq_27_a_backup_is_one_at_both_ends_from_the_beginning() -> None:
    pair = PathPair()
    opened(pair, is_backup=True)
    assert pair.client.history(1)[-1] is PathState.STANDBY
    assert pair.server.history(1)[-1] is PathState.STANDBY
    assert PathState.ACTIVE not in pair.server.history(1)
    pair.client.paths.prefer(1, is_backup=False)
    pair.settle(0.2)
    assert pair.client.state(1) is pair.server.state(1) is PathState.ACTIVE


def test_mpq_27_a_status_that_comes_before_its_path_counts() -> None:
    pair = PathPair()
    pair.server.paths.receive(PathStatus(1, 2, True), pair.now)
    pair.server.paths.receive(PathStatus(1, 1, False), pair.now)
    opened(pair)
    assert pair.server.state(1) is PathState.STANDBY
    assert pair.client.state(1) is PathState.ACTIVE


def test_mpq_28_while_the_others_are_ill_the_peer_is_told_to_use_the_backup() -> None:
    pair = PathPair()
    opened(pair, is_backup=True)
    pair.client.paths.follow_health([0, 1])
    assert pair.server.state(1) is PathState.STANDBY
    pair.client.paths.follow_health([1])
    pair.settle(0.2)
    assert pair.server.state(1) is PathState.ACTIVE
    assert pair.server.state(0) is PathState.STANDBY
    pair.client.paths.follow_health([0, 1])
    pair.settle(0.2)
    assert pair.server.state(1) is PathState.STANDBY
    assert pair.server.state(0) is PathState.ACTIVE


def test_mpq_46_a_flood_of_new_paths_is_taken_at_a_rate() -> None:
    pair = PathPair(client_max=40, server_max=40)
    for path_id in range(1, 40):
        pair.packet(path_id)
    assert len(pair.server.paths.records) == 1 + 8
    assert pair.server.paths.refused == 31
    pair.now += 1.0
    pair.packet(39)
    assert 39 in pair.server.paths.records


def test_mpq_46_a_flood_of_challenges_takes_no_memory_and_is_answered_in_part() -> None:
    pair = PathPair()
    for number in range(1000):
        pair.server.paths.on_challenge(0, number.to_bytes(8), pair.address(0), 1200)
    assert len(pair.server.paths.probing_to_send(pair.now)) == 8


def test_a_call_about_no_open_path_is_a_mistake_of_ours() -> None:
    pair = PathPair()
    with pytest.raises(LocalProtocolError):
        pair.client.paths.abandon(2, pair.now)
    with pytest.raises(LocalProtocolError):
        pair.client.paths.prefer(2, is_backup=True)
