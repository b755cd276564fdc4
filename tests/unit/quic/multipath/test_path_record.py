import pytest

from qtunnel.quic.multipath.amplification import AddressAllowance
from qtunnel.quic.multipath.path_migration import PathAddress, PathMigration
from qtunnel.quic.multipath.path_record import PathRecord
from qtunnel.quic.multipath.path_state import PathState
from qtunnel.quic.multipath.path_status import PathPreference
from qtunnel.quic.multipath.path_validation import INITIAL_PTO, PathValidation

ADDRESS = ("192.0.2.1", 1)


def record(state: PathState = PathState.VALIDATING) -> PathRecord:
    allowance = AddressAllowance()
    under_test = PathRecord(1, state, PathMigration(PathAddress(ADDRESS, allowance)), PathPreference(1))
    under_test.validation = PathValidation(10.0, pto=0.1, random_bytes=lambda size: bytes(size))
    return under_test


@pytest.mark.parametrize("state", list(PathState))
def test_data_go_on_validated_paths_only_and_nothing_on_those_that_end(state: PathState) -> None:
    under_test = record(state)
    assert under_test.is_validated == (state in (PathState.ACTIVE, PathState.STANDBY))
    assert under_test.is_open == (state not in (PathState.ABANDONING, PathState.CLOSED))


def test_what_cannot_be_sent_makes_no_timer() -> None:
    under_test = record()
    patience = 10.0 + 3 * INITIAL_PTO
    assert under_test.timers(has_cid=True) == [patience]  # nothing came from there yet
    assert under_test.migration is not None
    under_test.migration.current.allowance.on_received(100)
    assert under_test.timers(has_cid=True) == [10.0]
    assert under_test.timers(has_cid=False) == [patience]
    under_test.state = PathState.ABANDONING
    under_test.drained_at = 12.0
    assert under_test.timers(has_cid=True) == [12.0]


def test_a_path_without_an_address_can_be_sent_nothing() -> None:
    assert PathRecord(1, PathState.ABANDONING, None, PathPreference(1)).allowed == 0


def test_one_end_is_enough_to_make_a_backup() -> None:
    under_test = record()
    assert not under_test.is_backup
    under_test.preference.is_backup_there = True
    assert under_test.is_backup
