"""The description of a link: what it computes, and what each back end is told."""

import pytest

from netlab.backends.netem import netem_arguments, tbf_arguments
from netlab.shape import Shape


def test_one_bdp_at_100_mbit_and_40_ms_is_331_packets_and_166_in_the_delay_line():
    shape = Shape.of(100e6, 0.040)
    assert (shape.delay_s, shape.limit_packets) == (0.020, 496)


def test_queue_in_bytes_leaves_the_delay_line_out():
    shape = Shape.of(100e6, 0.040, in_bytes=True)
    assert shape.limit_bytes == 500_000


@pytest.mark.parametrize(
    "settings",
    [
        {"rate_bps": 100.0},
        {"delay_s": -1.0},
        {"loss": 1.5},
        {"reorder": -0.1, "delay_s": 0.1},
        {"reorder": 0.1},
        {"limit_packets": 0},
        {"limit_bytes": 100, "rate_bps": 1e6},
        {"limit_bytes": 10_000},
    ],
)
def test_impossible_links_are_refused(settings):
    with pytest.raises(ValueError, match=r".+"):
        Shape(**settings)


def test_settings_survive_json():
    shape = Shape(rate_bps=1e6, delay_s=0.1, loss=0.1, limit_packets=7, seed=3)
    assert Shape.from_dict(shape.as_dict()) == shape


def test_netem_is_told_rate_delay_limit_loss_and_reordering():
    shape = Shape(rate_bps=1e6, delay_s=0.02, limit_packets=99, loss=0.01, reorder=0.25)
    assert " ".join(netem_arguments(shape)) == (
        "netem delay 20000us rate 1000000bit limit 99 loss 1.000000% reorder 25.000000%"
    )


def test_queue_in_bytes_is_a_tbf_below_netem():
    shape = Shape(rate_bps=1e6, delay_s=0.02, limit_bytes=50_000)
    assert "rate" not in netem_arguments(shape)
    assert " ".join(tbf_arguments(shape)) == "tbf rate 1000000bit burst 3028 limit 50000"
