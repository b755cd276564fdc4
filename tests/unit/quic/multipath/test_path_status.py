from qtunnel.quic.multipath.frames import PathStatus
from qtunnel.quic.multipath.path_status import PathPreference


def test_mpq_27_numbers_rise_and_begin_above_0_and_nothing_is_said_twice() -> None:
    preference = PathPreference(3)
    first = preference.prefer(True)
    assert first == PathStatus(3, 1, True)
    assert preference.prefer(True) is None
    assert preference.prefer(False) == PathStatus(3, 2, False)
    assert not preference.is_newest(first)
    assert preference.is_newest(PathStatus(3, 2, False))
    assert preference.repeat() == PathStatus(3, 3, False)


def test_mpq_27_what_is_not_newer_is_ignored() -> None:
    preference = PathPreference(3)
    assert preference.receive(PathStatus(3, 0, True))
    assert preference.is_backup_there
    assert preference.receive(PathStatus(3, 7, False))
    assert not preference.receive(PathStatus(3, 7, True))
    assert not preference.receive(PathStatus(3, 6, True))
    assert not preference.is_backup_there
    assert not preference.is_backup_here
