"""Results as plain JSON data: the same figures that tables show."""

from collections.abc import Mapping, Sequence
from typing import Any

from flowshunt.engine import Signature
from flowshunt.pipeline.compare import AlertChange, Comparison, ModeFigures
from flowshunt.pipeline.result import Amount, RunResult
from flowshunt.pipeline.throughput import Throughput


def _amount(amount: Amount) -> dict[str, int]:
    return {"frames": amount.frames, "bytes": amount.bytes}


def _signature(signature: Signature) -> dict[str, Any]:
    return {"gid": signature.gid, "sid": signature.sid, "rev": signature.rev, "signature": signature.message}


def run_figures(result: RunResult) -> dict[str, Any]:
    """A run's result. Times in ns, `_per_frame` over all frames that came in."""
    time = result.host_time
    return {
        "mode": str(result.mode),
        "nic": result.nic,
        "engine": result.engine,
        "complete": result.complete,
        "interrupted": result.interrupted,
        "total": _amount(result.total),
        "delivered": _amount(result.delivered),
        "inspected": _amount(result.inspected),
        "dropped_by_rule": _amount(result.dropped),
        "bypassed": _amount(result.bypassed),
        "bypassed_in_host": _amount(result.bypassed_host),
        "bypassed_on_nic": _amount(result.bypassed_nic),
        "bypassed_by_action": {name: _amount(amount) for name, amount in sorted(result.by_action.items())},
        "host_ns": {
            "receive": time.receive,
            "decode": time.decode,
            "flows": time.flows,
            "inspect": time.inspect,
            "offload": time.offload,
            "output": time.output,
            "total": time.total,
        },
        "host_ns_per_frame": result.host_ns_per_frame,
        "host_buffers": [_amount(amount) for amount in result.host_buffers],
        "flows": {
            "total": result.flows,
            "bypassed": dict(result.flows_bypassed),
            "ended": dict(result.flows_ended),
            "not_tracked_frames": result.flows_overflow,
        },
        "nic_flows": dict(result.nic_flows),
        "rules": {
            "loaded": result.loaded_rules,
            "skipped": [
                {"file": p.path, "line": p.line, "sid": p.sid, "reason": p.reason} for p in result.skipped_rules
            ],
        },
        "alerts": [
            {**_signature(signature), "count": count}
            for signature, count in sorted(result.alerts.items(), key=lambda item: (item[0].gid, item[0].sid))
        ],
        "engine_counters": dict(result.engine_counters),
        "problems": list(result.problems),
        "warnings": list(result.warnings),
    }


def _throughput(throughput: Throughput) -> dict[str, Any]:
    unbounded = throughput.host_gbps == float("inf")
    return {
        "cores": throughput.cores,
        "busiest_core_share": throughput.busiest_share,
        "host_gbps": None if unbounded else throughput.host_gbps,
        "line_rate_gbps": throughput.line_rate,
        "lossless_gbps": throughput.lossless_gbps,
    }


def _changes(changes: Sequence[AlertChange]) -> list[dict[str, Any]]:
    return [
        {
            **_signature(change.signature),
            "count": change.count,
            "flows": [{"flow": flow, "count": count} for flow, count in change.flows],
        }
        for change in changes
    ]


def _mode(figures: ModeFigures) -> dict[str, Any]:
    return {
        **run_figures(figures.result),
        "host_ns_per_frame": figures.host_ns_per_frame,
        "host_cost_to_no_bypass": figures.cost_ratio,
        "throughput": _throughput(figures.throughput),
        "alerts_lost": _changes(figures.lost),
        "alerts_gained": _changes(figures.gained),
    }


def comparison_figures(comparison: Comparison) -> dict[str, Any]:
    """A comparison: each mode's figures by its name, and the ratio of hardware to software bypass."""
    modes: Mapping[str, Any] = {str(mode): _mode(figures) for mode, figures in comparison.modes.items()}
    return {
        "captures": list(comparison.captures),
        "rounds": comparison.rounds,
        "complete": comparison.complete,
        "hardware_to_software_host_cost": comparison.hardware_to_software,
        "modes": modes,
    }
