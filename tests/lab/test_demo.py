"""The demonstration's words: what a stranger sees beside a tunnel's own status."""

from unittest.mock import MagicMock

import pytest

from netlab import demo
from netlab.command import Completed
from netlab.steps import StepFailed


def side(text: str, code: int = 0) -> MagicMock:
    done = Completed(argv=("qtunnel", "status"), code=code, stdout=text, stderr="", seconds=0.1)
    return MagicMock(status=lambda: done)


def test_drops_in_the_queue_are_explained_and_others_are_not():
    assert "faster than the tunnel" in demo._status(side("lab: client\n  drops  queue-full 9\n"))
    assert "faster than the tunnel" not in demo._status(side("lab: client\n  drops  link-local 2\n"))
    assert "faster than the tunnel" not in demo._status(side("lab: client\n"))


def test_status_that_fails_is_a_failed_step():
    with pytest.raises(StepFailed, match="exit code 1: no tunnel"):
        demo._status(side("no tunnel", code=1))
