"""Two tunnels on one host at once, to two servers: each with a table and rule priorities of its own.

The second server runs in c2, and h is behind the first one only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from qtunnel.cli.exit_codes import ExitCode
from tests.linux.daemons import Daemon
from tests.linux.footprint import assert_same_footprint, footprint
from tests.linux.namespaces import Namespace
from tests.linux.pings import assert_reaches, ping
from tests.linux.site import HOST4, HOST6, INNER4, INNER6, UP, Site

pytestmark = pytest.mark.root

OTHER_INNER4, OTHER_INNER6 = "198.19.78.1", "2001:db8:78::1"
OWN_TABLE = ("--table", "778", "--priority", "5190")


@dataclass
class Two:
    site: Site
    host: Namespace

    def start_second(self, *options: str) -> Daemon:
        return self.site.daemon(self.host, ["connect", "second", *options], log="second", owner="c1")


@pytest.fixture(scope="module")
def two() -> Iterator[Two]:
    with Site.open(clients=("c1", "c2")) as site:
        host, other = site.client("c1").host, site.client("c2").host
        site.start_server()
        site.client("c1").join(site.add_user("c1"))
        state = site.directory / "other-state"
        arguments = ["--state-dir", str(state), "--port", "4434", "--public-name", "198.18.2.2:4434"]
        arguments += ["--pool4", f"{OTHER_INNER4}/24", "--pool6", f"{OTHER_INNER6}/64"]
        serving = site.daemon(other, ["serve", *arguments], log="other-serve", owner="c2")
        serving.wait_for("^join link for ")
        link = (state / "join" / "user1.link").read_text()
        site.qtunnel(host, ["join", "--name", "second"], owner="c1", input_text=link)
        yield Two(site, host)


def test_two_clients_with_tables_of_their_own_do_not_disturb_each_other(two: Two) -> None:
    before = footprint(two.host)
    with two.site.client("c1").running() as first:
        with_one = footprint(two.host)
        second = two.start_second(*OWN_TABLE)
        second.wait_for(UP)
        assert_reaches(two.host, INNER4, INNER6, HOST4, HOST6, OTHER_INNER4, OTHER_INNER6)
        shown = two.site.qtunnel(two.host, ["status"], owner="c1").stdout
        assert "c1: client, connected" in shown
        assert "second: client, connected" in shown
        assert second.stop() == 0
        assert_same_footprint(two.host, with_one)
        assert_reaches(two.host, HOST4, HOST6)
        second = two.start_second(*OWN_TABLE)
        second.wait_for(UP)
        assert first.daemon.stop() == 0
        assert_reaches(two.host, OTHER_INNER4, OTHER_INNER6)
        assert ping(two.host, HOST4, count=1, patience=1) == 0
        assert second.stop() == 0
    assert_same_footprint(two.host, before)


def test_a_second_client_with_the_table_of_the_first_is_refused_and_disturbs_nothing(two: Two) -> None:
    with two.site.client("c1").running():
        with_one = footprint(two.host)
        second = two.start_second()
        assert second.wait() == ExitCode.SYSTEM
        assert "are in use by the tunnel on qtun" in second.text()
        assert "--table" in second.text()
        assert_same_footprint(two.host, with_one)
        assert_reaches(two.host, HOST4, HOST6)


def test_a_second_run_of_the_same_profile_is_refused(two: Two) -> None:
    with two.site.client("c1").running():
        again = two.site.daemon(two.host, ["connect", "c1", *OWN_TABLE], log="again", owner="c1")
        assert again.wait() == ExitCode.ALREADY_RUNNING
        assert "a tunnel named 'c1' runs already" in again.text()
        assert_reaches(two.host, HOST4)
