"""Gives each test network namespaces of its own, and shows the logs of a site with a failure."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.linux.namespaces import Namespaces
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
