"""One worker against Suricata: frames per second and memory, on the same capture, rules and outputs.

    python tests/benchmarks/suricata_speed.py [CAPTURE RULES] [--suricata PATH] [--flows N] [--rounds N]

Runs where `suricata` is on the PATH (or where --suricata says); elsewhere it says so and measures nothing. Suricata
runs with `--runmode single`. Both write EVE events of alerts and flows. Each round runs both one after the other, first
on one frame, which is what starting costs, then on the capture. Printed are medians of the rounds, with starting
taken off. Two comparisons: without any bypass, and flowshunt's hardware bypass against Suricata's local bypass, where
the sample's own rules (which bypass) are added and `encryption-handling: bypass` is set.

Without a capture it makes a sample; without rules it takes the Emerging Threats rules of the shared data, or else the
sample's own. CPU is user and system time of the whole process, for flowshunt with its model of the card; `host` is what
flowshunt spends beside the card.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import attrs

from flowshunt.packets.capture import open_captures
from flowshunt.packets.sample import write_sample
from flowshunt.packets.writer import CaptureWriter

SHARED = Path(os.environ.get("FLOWSHUNT_SHARED", Path(__file__).parents[2].parent / "shared"))
CONFIG = """%YAML 1.1
---
vars:
  address-groups:
    HOME_NET: "[192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]"
    EXTERNAL_NET: "!$HOME_NET"
{groups}
  port-groups:
    HTTP_PORTS: "80"
    SHELLCODE_PORTS: "!80"
    ORACLE_PORTS: 1521
    SSH_PORTS: 22
    FILE_DATA_PORTS: "[$HTTP_PORTS,110,143]"
    FTP_PORTS: 21
    MODBUS_PORTS: 502
    DNP3_PORTS: 20000
stats: {{enabled: no}}
outputs:
  - eve-log: {{enabled: yes, filetype: regular, filename: eve.json, types: [alert, flow]}}
logging: {{default-log-level: error}}
app-layer:
  protocols:
    http: {{enabled: yes}}
    tls: {{enabled: yes, detection-ports: {{dp: 443}}, ja3-fingerprints: yes, encryption-handling: {handling}}}
    dns: {{tcp: {{enabled: yes, detection-ports: {{dp: 53}}}}, udp: {{enabled: yes, detection-ports: {{dp: 53}}}}}}
    smtp: {{enabled: yes}}
    ftp: {{enabled: yes}}
    ssh: {{enabled: yes, hassh: yes}}
stream:
  memcap: 512mb
  checksum-validation: no
  bypass: {bypass}
  reassembly: {{memcap: 512mb, depth: 1mb, toserver-chunk-size: 2560, toclient-chunk-size: 2560,
    randomize-chunk-size: no}}
host-mode: sniffer-only
{files}
"""
_SERVERS = ("HTTP", "SMTP", "SQL", "DNS", "TELNET")
_HOSTS = ("AIM_SERVERS", "DC_SERVERS", "DNP3_SERVER", "DNP3_CLIENT", "MODBUS_CLIENT", "MODBUS_SERVER", "ENIP_SERVER")


@attrs.frozen
class Usage:
    """What a process took: seconds on the clock and of CPU, most resident bytes; host: see the module."""

    wall: float
    cpu: float
    memory: int
    host: float = 0.0

    def without(self, start: "Usage") -> "Usage":
        return Usage(self.wall - start.wall, self.cpu - start.cpu, self.memory, self.host - start.host)


def _configuration(folder: Path, *, bypass: bool) -> Path:
    groups = [f"{name}_SERVERS" for name in _SERVERS] + list(_HOSTS)
    files = {"classification-file": "classification.config", "reference-config-file": "reference.config"}
    path = folder / f"suricata-{bypass}.yaml"
    path.write_text(
        CONFIG.format(
            groups="\n".join(f'    {name}: "$HOME_NET"' for name in groups),
            handling="bypass" if bypass else "track-only",
            bypass="yes" if bypass else "no",
            files="\n".join(
                f"{key}: {SHARED / 'data' / name}" for key, name in files.items() if (SHARED / "data").exists()
            ),
        )
    )
    return path


def _run(command: Sequence[str | Path], folder: Path) -> Usage:
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        start = time.perf_counter()
        process = subprocess.Popen([str(word) for word in command], stdout=out, stderr=err, cwd=folder)
        _pid, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(
            f"{command[0]} failed with status {process.returncode}:\n{(folder / 'err').read_text()[-2000:]}"
        )
    return Usage(wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def run_suricata(program: str, config: Path, rules: Path, capture: Path, folder: Path) -> Usage:
    shutil.rmtree(folder / "log", ignore_errors=True)
    (folder / "log").mkdir()
    return _run(
        [program, "-c", config, "-S", rules, "-r", capture, "-l", folder / "log", "--runmode", "single", "-k", "none"],
        folder,
    )


def run_flowshunt(mode: str, config: Path, rules: Path, capture: Path, folder: Path) -> Usage:
    (folder / "log").mkdir(exist_ok=True)
    found = _run(
        [sys.executable, "-m", "flowshunt", "run", capture, "--rules", rules, "--config", config, "--bypass", mode,
         "--eve", folder / "log" / "eve.json", "--eve-types", "alert,flow", "--json"],
        folder,
    )  # fmt: skip
    return attrs.evolve(found, host=json.loads((folder / "out").read_text())["host_ns"]["total"] / 1e9)


def alerts_of(folder: Path) -> Counter[int]:
    """Alerts by sid in what was written."""
    found: Counter[int] = Counter()
    for line in (folder / "log" / "eve.json").read_text().splitlines():
        event = json.loads(line)
        if event["event_type"] == "alert":
            found[event["alert"]["signature_id"]] += 1
    return found


def _first_frame(capture: Path, path: Path) -> int:
    """Write the capture's first frame alone; gives how many frames the capture has."""
    frames = 0
    with open_captures([capture]) as source, CaptureWriter(path) as writer:
        for batch in source:
            if not frames:
                begin = int(batch.offset[0])
                data = batch.data[begin : begin + int(batch.captured[0])].tobytes()
                writer.write(int(batch.timestamp[0]), data)
            frames += len(batch)
    return frames


def compare(program: str, capture: Path, rules: Path, folder: Path, rounds: int, *, bypass: bool) -> None:
    config = _configuration(folder, bypass=bypass)
    single = folder / "one.pcap"
    frames = _first_frame(capture, single)
    mode = "hardware" if bypass else "off"
    ours, theirs = folder / "flowshunt", folder / "suricata"
    ours.mkdir(exist_ok=True)
    theirs.mkdir(exist_ok=True)
    starts: dict[str, list[Usage]] = {"flowshunt": [], "suricata": []}
    spent: dict[str, list[Usage]] = {"flowshunt": [], "suricata": []}
    run_flowshunt(mode, config, rules, single, ours)
    for _ in range(rounds):
        starts["flowshunt"].append(run_flowshunt(mode, config, rules, single, ours))
        starts["suricata"].append(run_suricata(program, config, rules, single, theirs))
        spent["flowshunt"].append(run_flowshunt(mode, config, rules, capture, ours).without(starts["flowshunt"][-1]))
        spent["suricata"].append(run_suricata(program, config, rules, capture, theirs).without(starts["suricata"][-1]))
    print(f"\n{'hardware bypass against local bypass' if bypass else 'no bypass'}: {frames:,} frames")
    print(
        f"{'':12s}{'start s':>9s}{'wall s':>9s}{'cpu s':>9s}{'host s':>9s}{'frames/cpu s':>14s}{'MB':>8s}{'alerts':>8s}"
    )
    middle: dict[str, Usage] = {}
    found = {name: alerts_of(folder / name) for name in spent}
    for name, used in spent.items():
        one = middle[name] = Usage(
            *(statistics.median(getattr(each, field.name) for each in used) for field in attrs.fields(Usage))
        )
        start = statistics.median(each.wall for each in starts[name])
        host = f"{one.host:9.2f}" if one.host else " " * 9
        print(
            f"{name:12s}{start:9.2f}{one.wall:9.2f}{one.cpu:9.2f}{host}{frames / one.cpu:14,.0f}{one.memory / 1e6:8.0f}"
            f"{found[name].total():8d}"
        )
    ours_used, theirs_used = middle["flowshunt"], middle["suricata"]
    ratios = {
        "by the clock": theirs_used.wall / ours_used.wall,
        "by CPU": theirs_used.cpu / ours_used.cpu,
        "by the host's CPU": theirs_used.cpu / ours_used.host,
    }
    print("frames per second against Suricata:", ", ".join(f"{ratio:.2f}x {name}" for name, ratio in ratios.items()))
    print(f"memory against Suricata: {ours_used.memory / theirs_used.memory:.2f}x")
    only = {name: found[name] - found[other] for name, other in (("flowshunt", "suricata"), ("suricata", "flowshunt"))}
    if any(only.values()):
        print("alerts of one only, by sid:", {name: dict(some) for name, some in only.items() if some})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--suricata", default=shutil.which("suricata"))
    parser.add_argument("--flows", type=int, default=8000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.suricata is None:
        print("suricata is not on the PATH (see --suricata): nothing was measured")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        capture, rules = (*options.files, None, None)[:2]
        if capture is None:
            capture = folder / "sample.pcap"
            write_sample(capture, flows=options.flows)
        own = Path(f"{capture}.rules")
        if rules is None:
            emerging = SHARED / "data" / "et-open-2019.rules"
            rules = emerging if emerging.exists() else own
        capture, rules = capture.resolve(), rules.resolve()
        compare(options.suricata, capture, rules, folder, options.rounds, bypass=False)
        both = folder / "both.rules"
        more = own.read_bytes() if own.exists() and own.resolve() != rules else b""
        both.write_bytes(rules.read_bytes() + b"\n" + more)
        compare(options.suricata, capture, both, folder, options.rounds, bypass=True)


if __name__ == "__main__":
    main()
