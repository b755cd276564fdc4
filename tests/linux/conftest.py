"""Gives each test network namespaces of its own, and shows the logs of a site with a failure."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.linux.namespaces import Namespace, Namespaces
from tests.linux.site import Site


@pytest.fixture
def lab() -> Iterator[Namespaces]:
    with Namespaces() as namespaces:
        yield namespaces


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if report.failed:
        for value in getattr(item, "funcargs", {}).values():
            if isinstance(value, Site):
                report.sections.append(("logs", value.logs()))
    return report


@pytest.fixture
def host(lab: Namespaces) -> Iterator[Namespace]:
    """A host with two links, of 1500 and 1400 bytes, and a default route by the first."""
    made, router = lab.add("h"), lab.add("r")
    lab.join(made, "eth0", router, "eth0")
    lab.join(made, "eth1", router, "eth1", mtu=1400)
    for number in (0, 1):
        made.add_address(f"eth{number}", f"198.18.{number}.2/24")
        made.add_address(f"eth{number}", f"2001:db8:{number}::2/64")
        router.add_address(f"eth{number}", f"198.18.{number}.1/24")
    made.run("ip route add default via 198.18.0.1")
    made.run("ip -6 route add default via 2001:db8::1")
    with made.entered():
        yield made
