"""Comparing figures with bounds: facts fail, throughput may be inconclusive."""

from netlab.judge import Judge
from netlab.results import Outcome, Sample, Verdict


def outcome(tunnel: str = "qtunnel", steal: float = 0.0, **metrics: list[float]) -> Outcome:
    found = Outcome(tunnel=tunnel)
    for number in range(max(len(values) for values in metrics.values())):
        sample = Sample(tunnel=tunnel, number=number, seed=1, steal=steal)
        sample.metrics = {name: values[number] for name, values in metrics.items()}
        found.samples.append(sample)
    return found


def judged(found: Outcome, control: Outcome | None = None) -> Verdict:
    Judge(found, {}, control).throughput("TCP", "mbps", ceiling="ceiling", share=0.95)
    return found.verdict()


def test_fact_is_judged_by_the_worst_run():
    found = outcome(fragments=[0, 0, 1])
    Judge(found, {}).at_most("fragments", "fragments", 0)
    assert found.verdict() is Verdict.FAILS


def test_throughput_is_judged_by_the_median():
    assert judged(outcome(mbps=[10, 96, 97], ceiling=[100, 100, 100])) is Verdict.HOLDS


def test_throughput_below_its_share_fails_on_a_quiet_machine():
    assert judged(outcome(mbps=[50], ceiling=[100])) is Verdict.FAILS


def test_throughput_is_inconclusive_when_plain_ip_fell_short_too():
    control = outcome("none", mbps=[60], ceiling=[100])
    assert judged(outcome(mbps=[50], ceiling=[100]), control) is Verdict.INCONCLUSIVE


def test_throughput_fails_when_plain_ip_did_not_fall_short():
    control = outcome("none", mbps=[99], ceiling=[100])
    assert judged(outcome(mbps=[50], ceiling=[100]), control) is Verdict.FAILS


def test_throughput_is_inconclusive_when_cpu_was_stolen():
    assert judged(outcome(steal=0.2, mbps=[50], ceiling=[100])) is Verdict.INCONCLUSIVE


def test_bounded_metric_that_no_run_has_fails_and_a_reported_one_is_left_out():
    found = outcome(mbps=[1])
    Judge(found, {}).at_most("fragments", "fragments", 0)
    Judge(found, {}).report("memory", "memory")
    (criterion,) = found.criteria
    assert (criterion.verdict, criterion.note) == (Verdict.FAILS, "fragments was not measured")


def test_figure_that_is_none_fails_whatever_the_other_runs_had():
    found = outcome(fragments=[0, float("nan")], mbps=[99, float("nan")], ceiling=[100, 100])
    judge = Judge(found, {})
    judge.at_most("fragments", "fragments", 0)
    judge.throughput("TCP", "mbps", ceiling="ceiling", share=0.5)
    judge.latency("TCP", "mbps", bound=200)
    assert [criterion.verdict for criterion in found.criteria] == [Verdict.FAILS] * 3


def test_plain_ip_without_a_figure_is_no_excuse():
    control = outcome("none", mbps=[float("nan")], ceiling=[100])
    assert judged(outcome(mbps=[50], ceiling=[100]), control) is Verdict.FAILS


def test_ceiling_of_zero_is_reached_by_nothing():
    assert judged(outcome(mbps=[0], ceiling=[0])) is Verdict.FAILS


def test_worst_verdict_is_the_whole_ones():
    assert Verdict.of([Verdict.HOLDS, Verdict.INCONCLUSIVE]) is Verdict.INCONCLUSIVE
    assert Verdict.of([Verdict.INCONCLUSIVE, Verdict.FAILS, Verdict.HOLDS]) is Verdict.FAILS
    assert Verdict.of([]) is Verdict.HOLDS


def test_tunnel_that_failed_to_come_up_fails():
    assert Outcome(tunnel="x", error="did not start").verdict() is Verdict.FAILS
    assert Outcome(tunnel="x", not_applicable="lacks it").verdict() is Verdict.HOLDS
