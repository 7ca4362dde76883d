"""What tables say beside their figures: why rules were skipped, what a card refused, where times say little."""

from io import StringIO

import attrs
import numpy as np
import pytest
from rich.console import Console

from flowshunt.engine import RuleProblem
from flowshunt.flows.record import FLOW
from flowshunt.output.eve import flow_event
from flowshunt.output.tables import print_comparison, print_problems
from flowshunt.pipeline.compare import Comparison, ModeFigures
from flowshunt.pipeline.mode import BypassMode
from flowshunt.pipeline.result import Amount, HostTime, RunResult
from flowshunt.pipeline.throughput import Throughput

NONE = Amount(0, 0)
HTTP = [RuleProblem("x.rules", line, line, "protocol http: not supported yet") for line in range(1, 31)]
TLS = [RuleProblem("x.rules", line, line, "protocol tls: not supported yet") for line in range(31, 36)]


def _result(frames: int, bypassed: int, mode: BypassMode = BypassMode.HARDWARE) -> RunResult:
    total = Amount(frames, 100 * frames)
    return RunResult(
        mode=mode,
        nic="xl710",
        engine="ids",
        total=total,
        delivered=total,
        inspected=total,
        dropped=NONE,
        bypassed_host=NONE,
        bypassed_nic=NONE,
        by_action={},
        host_time=HostTime(),
        nic_ns=0,
        host_buffers=(total, NONE),
        flows=5,
        flows_bypassed={"local": bypassed},
        flows_ended={},
        flows_overflow=0,
        nic_flows={},
        alerts={},
        alert_flows={},
    )


def _problems(result: RunResult, verbose: bool = False) -> list[str]:
    out = StringIO()
    print_problems(Console(file=out, soft_wrap=True), result, verbose=verbose)
    return out.getvalue().splitlines()


def _compared(frames: int, bypassed: int, costs: tuple[float, float]) -> str:
    throughput = Throughput(8, 1.0, 10.0, 40.0)
    modes = {
        mode: ModeFigures(_result(frames, bypassed, mode), cost, 1.0, throughput, (), ())
        for mode, cost in zip(BypassMode, (100.0, *costs), strict=True)
    }
    out = StringIO()
    print_comparison(Console(file=out, width=80), Comparison(("x.pcap",), 1, modes))
    return out.getvalue()


def test_many_skipped_rules_are_told_by_reason_the_most_frequent_first():
    result = attrs.evolve(_result(1, 0), loaded_rules=7, skipped_rules=(*TLS, *HTTP))
    assert _problems(result) == [
        "rules: 7 loaded, 35 skipped",
        "      30  protocol http: not supported yet (first: x.rules:1: sid 1)",
        "       5  protocol tls: not supported yet (first: x.rules:31: sid 31)",
        "  -v or --json names every rule",
    ]


@pytest.mark.parametrize(("skipped", "verbose"), [(HTTP[:3], False), (HTTP, True)])
def test_few_skipped_rules_and_those_of_verbose_output_are_told_one_by_one(skipped, verbose):
    lines = _problems(attrs.evolve(_result(1, 0), loaded_rules=1, skipped_rules=skipped), verbose)
    assert lines[1:] == [f"  x.rules:{p.line}: sid {p.sid}: {p.reason}" for p in skipped]


def test_flows_that_the_card_refused_are_told_with_the_reason():
    result = attrs.evolve(_result(1, 3), nic_flows={"asked": 3, "learned": 0, "refused (no flow table)": 3})
    assert _problems(result) == ["warning: xl710 refused to learn 3 flows (no flow table): left to the host"]


def test_hardware_is_told_as_a_ratio_to_software_and_its_inverse_where_it_saves():
    assert "hardware bypass to software bypass: 0.400 (1/2.5)\n" in _compared(100_000, 5, (50.0, 20.0))
    assert "hardware bypass to software bypass: 1.200\n" in _compared(100_000, 5, (50.0, 60.0))


def test_where_nothing_was_bypassed_no_ratio_is_told():
    text = _compared(100_000, 0, (50.0, 20.0))
    assert "no flow was bypassed" in text
    assert "hardware bypass to software bypass" not in text


@pytest.mark.parametrize(("frames", "told"), [(175, True), (100_000, False)])
def test_few_frames_are_told_to_be_too_few_to_time(frames, told):
    assert ("too few to time" in _compared(frames, 5, (50.0, 20.0))) is told


@pytest.mark.parametrize(
    ("protocol", "ports"), [(6, True), (17, True), (132, True), (1, False), (58, False), (47, False)]
)
def test_flow_events_have_ports_where_the_protocol_has(protocol, ports):
    record = np.zeros(1, FLOW)[0]
    record["protocol"], record["ip_version"] = protocol, 4
    assert ({"src_port", "dest_port"} <= flow_event(record, 1, alerted=False).keys()) is ports
