"""qtunnel.pmtud.sent_probes."""

from __future__ import annotations

from qtunnel.pmtud.probes import ProbePacket, Purpose
from qtunnel.pmtud.search import ParallelSearch
from qtunnel.pmtud.sent_probes import MAX_LATE, SentProbe, SentProbes
from qtunnel.pmtud.trial import Pair


def a_probe(owner: object = None, sent: float = 1.0) -> SentProbe:
    return SentProbe(ProbePacket(1400, Purpose.SEARCH, owner), sent)


def test_a_probe_belongs_to_the_search_or_the_pair_that_asked() -> None:
    search, pair = ParallelSearch(1200, 1472, 4), Pair(1.0)
    assert (a_probe(search).search, a_probe(search).pair) == (search, None)
    assert (a_probe(pair).search, a_probe(pair).pair) == (None, pair)


def test_dpl_12_a_probe_is_known_by_its_number_and_answered_once() -> None:
    probes = SentProbes()
    probe = a_probe()
    probes.add(7, probe)
    assert probes.take_acked(8) is None
    assert probes.take_acked(7) is probe
    assert (probes.take_acked(7), probes.take_lost(7), len(probes)) == (None, None, 0)


def test_dpl_11_a_probe_that_was_thought_lost_may_still_arrive_once() -> None:
    probes = SentProbes()
    probe = a_probe()
    probes.add(7, probe)
    assert probes.take_lost(7) is probe
    assert len(probes) == 0
    assert probes.take_acked(7) is probe
    assert probes.take_acked(7) is None


def test_of_those_thought_lost_only_the_newest_are_remembered() -> None:
    probes = SentProbes()
    for number in range(MAX_LATE + 1):
        probes.add(number, a_probe())
        probes.take_lost(number)
    assert probes.take_acked(0) is None
    assert probes.take_acked(MAX_LATE) is not None


def test_it_says_whether_a_search_waits_for_an_answer() -> None:
    probes = SentProbes()
    search, other = ParallelSearch(1200, 1472, 4), ParallelSearch(1200, 1400, 4)
    probes.add(1, a_probe(search))
    probes.add(2, a_probe(Pair(1.0)))
    assert (probes.waits_for(search), probes.waits_for(other), probes.waits_for(None)) == (True, False, False)
    probes.add(3, a_probe())
    assert probes.waits_for(None)


def test_dpl_20_it_knows_which_have_waited_too_long() -> None:
    probes = SentProbes()
    assert probes.oldest_sent() is None
    for number, sent in ((1, 5.0), (2, 3.0), (3, 9.0)):
        probes.add(number, a_probe(sent=sent))
    assert probes.oldest_sent() == 3.0
    assert sorted(probes.sent_until(5.0)) == [1, 2]


def test_after_a_stall_the_loss_of_what_was_under_way_says_nothing() -> None:
    probes = SentProbes()
    before, after = a_probe(), a_probe()
    probes.add(1, before)
    probes.excuse()
    probes.add(2, after)
    assert (before.is_excused, after.is_excused) == (True, False)


def test_cleared_it_knows_none() -> None:
    probes = SentProbes()
    probes.add(1, a_probe())
    probes.add(2, a_probe())
    probes.take_lost(2)
    probes.clear()
    assert (len(probes), probes.take_acked(1), probes.take_acked(2)) == (0, None, None)
