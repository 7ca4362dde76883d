"""The throughput model agrees with what was measured elsewhere, and with what queueing theory says."""

import json

import attrs
import numpy as np
import pytest
from click.testing import CliRunner

from flowshunt.cli.root import main
from flowshunt.model.bed import PARAMETERS
from flowshunt.model.presets import MEASURED, NAPATECH_2019
from flowshunt.model.simulation import serve
from flowshunt.model.spread import measured_spread, spread
from flowshunt.model.throughput import estimate, line_limit, offered, sweep
from flowshunt.pipeline.mode import BypassMode

OFF, SOFTWARE, HARDWARE = BypassMode


@pytest.fixture(scope="module")
def estimates():
    return {mode: estimate(NAPATECH_2019, mode) for mode in BypassMode}


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("mode", list(BypassMode))
def test_the_source_s_throughput_comes_out_within_10_percent(mode, seed):
    measured = MEASURED["napatech-2019"][mode]
    assert estimate(NAPATECH_2019, mode, seed=seed).gbps == pytest.approx(measured, rel=0.10)


@pytest.mark.parametrize("mode", [OFF, SOFTWARE])
def test_on_the_standard_nic_about_half_the_cores_are_full_and_most_others_under_half(estimates, mode):
    cores = np.array(estimates[mode].load.cores)
    assert 17 <= np.count_nonzero(cores >= 0.9) <= 22
    assert np.count_nonzero(cores < 0.5) >= 16


def test_on_the_smart_nic_load_is_even_and_most_cores_are_under_80_percent(estimates):
    cores = np.array(estimates[HARDWARE].load.cores)
    assert np.count_nonzero(cores < 0.8) >= 36
    assert cores.std() / cores.mean() < 0.15


def test_every_parameter_has_a_source_or_says_that_it_was_chosen():
    for parameter in PARAMETERS:
        assert NAPATECH_2019.sources[parameter]


def test_more_bypass_never_lowers_the_throughput():
    rows = [[e.gbps for e in found] for _, found in sweep(NAPATECH_2019, "traffic.bypass_share", (0.0, 0.4, 0.8))]
    off, software, hardware = zip(*rows, strict=True)
    assert off[0] == pytest.approx(off[2], rel=0.02)
    assert software[0] < software[1] < software[2]
    assert hardware[0] < hardware[1] <= hardware[2]


def test_no_mode_exceeds_what_the_ports_carry(estimates):
    for mode, found in estimates.items():
        assert found.gbps <= line_limit(NAPATECH_2019, NAPATECH_2019.cards[mode])


def test_costs_scale_the_throughput_that_cores_limit(estimates):
    host = attrs.evolve(NAPATECH_2019.host, inspect_ns=14200.0, copy_ns=1000.0)
    slow = estimate(attrs.evolve(NAPATECH_2019, host=host), OFF)
    assert slow.gbps == pytest.approx(estimates[OFF].gbps * 7600 / 15200, rel=0.03)


def simulated(gap, cost, *, burst=0.0, room=1000.0, frames=200_000, jitter=0.0, inspected=1.0):
    out = np.zeros(3)
    serve(3, frames, gap, 1.0, burst, cost, cost, inspected, jitter, room, out)
    return out[0] / frames, out[1] / out[2]


def test_a_core_with_time_to_spare_loses_nothing():
    loss, busy = simulated(100.0, 50.0)
    assert loss == 0
    assert busy == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize("load", [1.25, 2.0, 4.0])
def test_a_core_that_is_asked_too_much_loses_what_it_cannot_do(load):
    loss, busy = simulated(100.0, 100.0 * load)
    assert loss == pytest.approx(1 - 1 / load, rel=0.03)
    assert busy > 0.99


def test_a_small_buffer_loses_frames_of_bursts_that_a_large_one_holds():
    small, _ = simulated(100.0, 70.0, burst=50.0, room=20.0)
    large, _ = simulated(100.0, 70.0, burst=50.0, room=20_000.0)
    assert small > 0.01
    assert large == 0


def test_flows_spread_by_their_sizes_and_the_bypassed_share_is_kept():
    shares = spread(NAPATECH_2019.traffic, 40, 1)
    assert shares.inspected.sum() + shares.bypassed.sum() == pytest.approx(1)
    assert shares.bypassed.sum() == pytest.approx(0.7, abs=0.01)
    few = spread(attrs.evolve(NAPATECH_2019.traffic, flows=200, largest_share=0.1), 40, 1)
    total, even = few.inspected + few.bypassed, shares.inspected + shares.bypassed
    assert total.std() > 3 * even.std()


def test_measured_traffic_keeps_its_own_spread():
    shares = measured_spread(np.array([30, 10, 60]), 0.5)
    assert (shares.inspected + shares.bypassed).tolist() == pytest.approx([0.3, 0.1, 0.6])
    with pytest.raises(ValueError, match="no frame"):
        measured_spread(np.zeros(3, np.int64), 0.5)


def test_a_rate_above_the_lossless_one_loses_frames(estimates):
    shares = spread(NAPATECH_2019.traffic, 40, 1)
    assert offered(NAPATECH_2019, OFF, estimates[OFF].gbps * 1.5, shares).loss > 0.05


def test_the_command_gives_the_table_as_json():
    outcome = CliRunner().invoke(main, ["model", "--preset", "napatech-2019", "--json"], standalone_mode=False)
    figures = json.loads(outcome.output)
    assert figures["modes"]["hardware"]["line_limited"]
    assert figures["modes"]["off"]["gbps"] == pytest.approx(15, rel=0.1)
    assert figures["bed"]["sources"]["host.inspect_ns"].startswith("fitted")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--preset", "napatech-2020"], "there is no preset napatech-2020"),
        (["--value", "host.speed=3"], "there is no parameter host.speed"),
        (["--value", "host.cores=many"], "host.cores=many"),
        (["--loss", "101"], "more than 0 and less than 100"),
        (["--loss", "x"], "no list of percentages"),
        (["--loss", "3"], "no capture given"),
    ],
)
def test_wrong_use_is_told_in_words(arguments, said):
    outcome = CliRunner().invoke(main, ["model", *arguments], standalone_mode=False)
    assert outcome.exception is not None
    assert said in str(outcome.exception)
