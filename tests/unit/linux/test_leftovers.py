"""Which rules are a killed run's, and which a living tunnel's."""

from __future__ import annotations

from ipaddress import ip_network

from qtunnel.linux.leftovers import leftover_rules, live_owner
from qtunnel.linux.netlink import MAIN_TABLE, PROTOCOL, Route, Rule

OURS = Rule(version=4, priority=5182, table=77)
OWN_INDEX, OTHER_INDEX = 5, 6


def route(table: int, index: int | None, protocol: int = PROTOCOL) -> Route:
    return Route(ip_network("0.0.0.0/0"), table, index, protocol)


def test_rules_at_our_priorities_marked_as_ours_are_left_over() -> None:
    main = Rule(version=4, priority=5180, table=MAIN_TABLE)
    assert leftover_rules([main, OURS], 5180, 77) == [main, OURS]


def test_a_rule_for_our_table_is_left_over_whoever_marked_it() -> None:
    unmarked = Rule(version=4, priority=5182, table=77, protocol=0)
    assert leftover_rules([unmarked], 5180, 77) == [unmarked]


def test_rules_of_others_and_at_other_priorities_are_not() -> None:
    others = [
        Rule(version=4, priority=5181, table=100, protocol=0),
        Rule(version=4, priority=5183, table=77),
        Rule(version=4, priority=5179, table=77),
        Rule(version=4, priority=32766, table=MAIN_TABLE, protocol=2),
    ]
    assert leftover_rules(others, 5180, 77) == []


def test_routes_of_another_tun_in_our_table_show_a_living_tunnel() -> None:
    assert live_owner([OURS], [route(77, OTHER_INDEX)], 77, OWN_INDEX) == OTHER_INDEX
    assert live_owner([], [route(77, OTHER_INDEX)], 77, OWN_INDEX) == OTHER_INDEX


def test_routes_in_the_table_a_rule_at_our_priority_points_to_show_one_too() -> None:
    assert live_owner([OURS], [route(77, OTHER_INDEX)], 88, OWN_INDEX) == OTHER_INDEX


def test_without_routes_nobody_lives() -> None:
    assert live_owner([OURS], [], 77, OWN_INDEX) is None


def test_our_own_routes_those_of_others_and_those_in_the_main_table_do_not_count() -> None:
    main_rule = Rule(version=4, priority=5180, table=MAIN_TABLE)
    routes = [
        route(77, OWN_INDEX),
        route(77, OTHER_INDEX, protocol=3),
        route(MAIN_TABLE, OTHER_INDEX),
        route(77, None),
    ]
    assert live_owner([main_rule, OURS], routes, 77, OWN_INDEX) is None
