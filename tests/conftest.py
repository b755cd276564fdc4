"""What every test may rely on: hypothesis profiles, seeds, and which tests need root or time.

pytest                            what a developer runs: no root needed, seconds
pytest --run-slow                 the minutes-long ones too
pytest --long                     10,000 hypothesis examples and many more simulation seeds
pytest --seed 37 tests/sim        exactly that seed, as a failure printed it
pytest --require-root tests/linux a root test that cannot run is an error instead of a skip (for CI)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from qtunnel.state.identity import ServerIdentity

FIRST_SEED = 1
TUN_DEVICE = Path("/dev/net/tun")

# A slow machine is no reason to fail: neither profile has a deadline.
hypothesis.settings.register_profile(
    "ci",
    max_examples=100,
    deadline=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "long",
    hypothesis.settings.get_profile("ci"),
    max_examples=10_000,
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("qtunnel")
    group.addoption("--run-slow", action="store_true", help="run tests marked slow")
    group.addoption("--long", action="store_true", help="10,000 hypothesis examples, many more seeds")
    group.addoption("--seed", type=int, default=None, metavar="N", help="run seeded tests with this seed only")
    group.addoption("--require-root", action="store_true", help="fail, instead of skip, where root is missing")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "seeds(ci, long): run once per seed, that many times")
    profile = "long" if config.getoption("--long") else os.environ.get("HYPOTHESIS_PROFILE", "ci")
    hypothesis.settings.load_profile(profile)


def pytest_report_header(config: pytest.Config) -> str:
    seed = config.getoption("--seed")
    return f"qtunnel: seeds from {FIRST_SEED}" if seed is None else f"qtunnel: seed {seed}"


def why_root_tests_cannot_run() -> str | None:
    """Return the reason in words, or None when they can."""
    if os.geteuid() != 0:
        return "needs root: sudo tests/run"
    if not TUN_DEVICE.exists():
        return f"needs {TUN_DEVICE}: modprobe tun"
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    reason = why_root_tests_cannot_run()
    for item in items:
        if reason is not None and item.get_closest_marker("root"):
            if config.getoption("--require-root"):
                raise pytest.UsageError(f"--require-root: {item.nodeid} {reason}")
            item.add_marker(pytest.mark.skip(reason=reason))
        if item.get_closest_marker("slow") and not config.getoption("--run-slow"):
            item.add_marker(pytest.mark.skip(reason="slow: run with --run-slow"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give every test that asks for `seed` its seeds: one, or as many as its `seeds` mark says."""
    if "seed" not in metafunc.fixturenames:
        return
    given = metafunc.config.getoption("--seed")
    if given is not None:
        seeds = [given]
    else:
        mark = metafunc.definition.get_closest_marker("seeds")
        which = "long" if metafunc.config.getoption("--long") else "ci"
        count = 1 if mark is None else mark.kwargs[which]
        seeds = list(range(FIRST_SEED, FIRST_SEED + count))
    metafunc.parametrize("seed", seeds, ids=[f"seed{seed}" for seed in seeds])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Say with each failure how to run that seed again."""
    report = yield
    callspec = getattr(item, "callspec", None)
    if report.failed and callspec is not None and "seed" in callspec.params:
        seed = callspec.params["seed"]
        name = item.nodeid.partition("[")[0]
        report.sections.append(("seed", f"seed {seed}; again: pytest --seed {seed} '{name}'"))
    return report


@pytest.fixture(scope="session")
def identity(tmp_path_factory: pytest.TempPathFactory) -> ServerIdentity:
    """Give the server of simulated tunnels (tests/sim/world.py) its key, which is made once."""
    # Not at the top: a broken qtunnel must not keep the tests of its other parts from being collected.
    from qtunnel.state.identity import load_or_create_identity

    state = tmp_path_factory.mktemp("state")
    return load_or_create_identity(state, server_name="sim.qtunnel.invalid", now=datetime.now(UTC))
