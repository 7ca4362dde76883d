"""Writing a sample: the capture, frame by frame as its flows send them, and the files that say what it holds."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flowshunt.errors import InputError
from flowshunt.packets.sample.flow import SECOND, Flow
from flowshunt.packets.sample.pools import Pools
from flowshunt.packets.sample.schedule import Schedule
from flowshunt.packets.sample.summary import PlantedAlert, SampleSummary, alerts_json, rules_text
from flowshunt.packets.sample.templates import TCP, UDP
from flowshunt.packets.writer import CaptureWriter

BEGIN = 1_709_625_600 * SECOND
"""The first flow's start, ns since 1970-01-01 UTC: 2024-03-05 08:00."""

FLOWS = 2000
FLOWS_A_SECOND = 100.0

Progress = Callable[[int, int], None]
"""Called now and then with how many flows have started, and how many there will be."""

REPORTED = 4096
"""Frames between two reports of progress."""

COUNTED = (
    "frames",
    "bytes",
    "tcp_frames",
    "udp_frames",
    "other_frames",
    "bypassable_frames",
    "bypassable_bytes",
    "reordered_frames",
    "retransmitted_frames",
    "fragments",
    "ipv6_flows",
    "vlan_flows",
)
ENDINGS = ("rules", "alerts.json", "summary.json")


class Tally:
    """Totals over the flows that have ended."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.planted: list[PlantedAlert] = []
        self.last = BEGIN

    def add(self, flow: Flow) -> None:
        """Count a flow that has sent its last frame."""
        counts = self.counts
        frames = flow.frames
        self.kinds[flow.label] += frames
        counts["frames"] += frames
        counts["bytes"] += flow.size
        counts[{TCP: "tcp_frames", UDP: "udp_frames"}.get(flow.protocol, "other_frames")] += frames
        if flow.bypassable:
            counts["bypassable_frames"] += frames
            counts["bypassable_bytes"] += flow.size
        counts["reordered_frames"] += flow.later
        counts["retransmitted_frames"] += flow.resent
        counts["fragments"] += flow.fragments
        counts["ipv6_flows"] += flow.ends.version == 6
        counts["vlan_flows"] += bool(flow.ends.vlans)

    def totals(self) -> dict[str, Any]:
        """The part of a `SampleSummary` that is counted here."""
        counted = {name: self.counts[name] for name in COUNTED}
        return {
            **counted,
            "duration": self.last - BEGIN,
            "kinds": dict(sorted(self.kinds.items())),
            "planted": tuple(self.planted),
        }


def write_sample(
    path: str | Path,
    *,
    flows: int = FLOWS,
    seed: int = 1,
    rate: float = FLOWS_A_SECOND,
    progress: Progress | None = None,
) -> SampleSummary:
    """Write sample traffic with `flows` flows to a pcap file (nanoseconds, Ethernet), about 85 frames a flow.

    Beside it go `PATH.rules` (Suricata rules), `PATH.alerts.json` (what they find, and what bypass loses of it) and
    `PATH.summary.json`. Equal arguments give equal bytes. `rate` is how many flows start in a second of packet time;
    the higher, the more of them are open at a time, and only these are in memory.

    Files of these names are replaced once the capture is complete; when writing fails or is interrupted, nothing is
    left behind. Raises InputError where a number or the path can't be used, or a file can't be written.
    """
    path = Path(path)
    _check(path, flows, seed, rate)
    rules, alerts, described = (path.with_name(f"{path.name}.{end}") for end in ENDINGS)
    schedule = Schedule(flows, seed, rate, BEGIN, Pools.from_seed(seed))
    tally = Tally()
    with replacing(described) as last, replacing(alerts) as third, replacing(rules) as second, replacing(path) as first:
        _write_frames(first, schedule, tally, progress)
        summary = SampleSummary(
            capture=path,
            rules=rules,
            alerts=alerts,
            summary=described,
            seed=seed,
            flows=schedule.opened,
            most_open=schedule.most_open,
            file_bytes=first.stat().st_size,
            **tally.totals(),
        )
        found = alerts_json(summary.planted, path.name, rules.name)
        second.write_bytes(rules_text().encode())
        third.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        last.write_text(json.dumps(summary.as_json(), indent=1) + "\n", encoding="utf-8")
    return summary


def _check(path: Path, flows: int, seed: int, rate: float) -> None:
    if flows < 1:
        raise InputError(f"{flows} flows can't be written", "flows", "at least 1")
    if seed < 0:
        raise InputError(f"{seed} is no seed", "seed", "a whole number from 0 on")
    if not 0.001 <= rate <= 1e9:
        raise InputError(f"{rate} flows a second can't start", "rate", "0.001 to 1000000000")
    if path.is_dir():
        raise InputError("is a folder", str(path), "name a file in it")
    if path.exists() and not path.is_file():
        raise InputError("is not a regular file", str(path), "name a file, since three others go beside it")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent}", str(path), "make it first")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The name of a file to write, which takes the place of `path` once that is done, and is removed when it fails."""
    part = path.with_name(f"{path.name}.part")
    try:
        yield part
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        reason = f"can't be written: {error.strerror}; nothing was left behind"
        raise InputError(reason, str(path), "free some space or choose another place") from None
    except InputError as error:
        part.unlink(missing_ok=True)
        if error.where != str(part):
            raise
        raise InputError(f"{error.what}; nothing was left behind", str(path), error.way_out) from None
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _write_frames(path: Path, schedule: Schedule, tally: Tally, progress: Progress | None) -> None:
    """Write the schedule's frames, and note where planted alerts fall."""
    time = BEGIN
    with CaptureWriter(path) as writer:
        write = writer.write
        for count, ((time, frame, marks), flow) in enumerate(schedule.run(tally.add), start=1):
            write(time, frame)
            if marks is not None:
                direction, sids = marks
                tally.planted += [PlantedAlert.at(sid, flow, direction, count, time) for sid in sids]
            if progress and count % REPORTED == 0:
                progress(schedule.opened, schedule.flows)
    tally.last = time
