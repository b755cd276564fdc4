from qtunnel.quic.multipath.amplification import AddressAllowance
from qtunnel.quic.multipath.path_migration import Move, PathAddress, PathMigration

HOME = ("192.0.2.1", 1000)
OTHER_PORT = ("192.0.2.1", 2000)
ELSEWHERE = ("198.51.100.7", 1000)


def migration() -> PathMigration:
    return PathMigration(PathAddress(HOME, AddressAllowance(is_validated=True)))


def packet(path: PathMigration, remote: tuple[str, int], now: float = 0.0, size: int = 100) -> Move:
    return path.on_packet(remote, size, now, is_newest=True, is_probing=False)


def test_mpq_19_a_path_moves_at_once_and_has_to_be_validated_anew() -> None:
    path = migration()
    assert packet(path, HOME) is Move.NONE
    assert packet(path, OTHER_PORT) is Move.PORT
    assert path.current.remote == OTHER_PORT
    assert path.current.allowance.left() == 300
    assert path.fallback is not None
    assert path.fallback.remote == HOME
    path.on_validated()
    assert path.current.allowance.left() is None
    assert path.fallback is None


def test_another_host_is_another_network() -> None:
    assert packet(migration(), ELSEWHERE) is Move.HOST


def test_mpq_20_a_probing_packet_or_one_that_was_overtaken_moves_nothing() -> None:
    path = migration()
    assert path.on_packet(OTHER_PORT, 100, 0.0, is_newest=True, is_probing=True) is Move.NONE
    assert path.on_packet(OTHER_PORT, 100, 0.0, is_newest=False, is_probing=False) is Move.NONE
    assert path.current.remote == HOME


def test_our_own_address_is_part_of_the_4_tuple() -> None:
    path = PathMigration(PathAddress(HOME, AddressAllowance(is_validated=True), "203.0.113.1"))
    move = path.on_packet(HOME, 100, 0.0, is_newest=True, is_probing=False, local="203.0.113.2")
    assert move is Move.PORT
    assert path.current.local == "203.0.113.2"


def test_going_back_to_the_validated_address_needs_no_validation() -> None:
    path = migration()
    packet(path, OTHER_PORT)
    assert packet(path, HOME) is Move.PORT
    assert path.current.allowance.is_validated
    assert path.fallback is None


def test_a_failed_validation_leads_back_to_the_last_validated_address() -> None:
    path = migration()
    packet(path, OTHER_PORT)
    packet(path, ELSEWHERE)
    assert path.on_validation_failed()
    assert path.current.remote == HOME
    fresh = PathMigration(PathAddress(HOME, AddressAllowance()))
    assert not fresh.on_validation_failed()


def test_moves_have_a_rate_and_a_refused_address_is_taken_later() -> None:
    path = migration()
    moves = [packet(path, ("192.0.2.1", port)) for port in range(2000, 2100)]
    assert moves == [Move.PORT] * 5 + [Move.TOO_OFTEN] * 95
    assert (path.moves, path.refused) == (5, 95)
    assert packet(path, ("192.0.2.1", 2099), now=1.0) is Move.PORT


def test_a_nat_that_rebinds_every_second_is_followed_without_growth() -> None:
    path = migration()
    for second in range(1, 1000):
        assert packet(path, ("192.0.2.1", 10_000 + second), now=float(second)) is Move.PORT
        if second % 3:
            path.on_validated()
    assert path.refused == 0
    assert path.current.remote == ("192.0.2.1", 10_999)
