"""EVE: one JSON object a line, with the field names and meaning of Suricata 7 ("EVE JSON Format" of its user guide)."""

import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowshunt.errors import InputError
from flowshunt.flows.record import Bypass, EndReason, TcpState
from flowshunt.pipeline.alert import AlertRecord, EventRecord, flow_endpoints, flow_number, protocol_name, vlan_ids
from flowshunt.pipeline.result import RunResult

EVENT_TYPES = ("alert", "flow", "stats")
"""What every run can write."""
ENGINE_EVENT_TYPES = ("http", "fileinfo", "tls", "dns", "ssh", "smtp", "ftp", "ftp_data", "anomaly", "drop")
"""What engines may tell beside."""

_FLUSH_BYTES = 1 << 18
_WITH_PORTS = frozenset({6, 17, 132})
_REASONS = {
    EndReason.TCP_END: "tcp_end",
    EndReason.TIMEOUT: "timeout",
    EndReason.UNLEARNED: "forced",
    EndReason.DISPLACED: "forced",
    EndReason.SHUTDOWN: "shutdown",
}
_TCP_STATES = {
    TcpState.NONE: "none",
    TcpState.SYN_SENT: "syn_sent",
    TcpState.SYN_RECEIVED: "syn_recv",
    TcpState.ESTABLISHED: "established",
    TcpState.CLOSING: "closing",
    TcpState.CLOSED: "closed",
}
_TCP_FLAG_NAMES = ("fin", "syn", "rst", "psh", "ack", "urg", "ecn", "cwr")
_DIRECTIONS = ("to_server", "to_client")


def timestamp_text(ns: int) -> str:
    """Nanoseconds since 1970-01-01 UTC as EVE writes them, to the microsecond."""
    seconds, rest = divmod(ns, 1_000_000_000)
    return f"{_second_text(seconds)}.{rest // 1000:06d}+0000"


@lru_cache(maxsize=4096)
def _second_text(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "1970-01-01T00:00:00"


def alert_event(alert: AlertRecord) -> dict[str, Any]:
    """The `alert` event of an alert."""
    signature = alert.signature
    event: dict[str, Any] = {"timestamp": timestamp_text(alert.timestamp)}
    if alert.flow_id:
        event["flow_id"] = alert.flow_id
    if alert.frame >= 0:
        event["pcap_cnt"] = alert.frame + 1
    event["event_type"] = "alert"
    if alert.vlans:
        event["vlan"] = list(alert.vlans)
    ports = alert.protocol in _WITH_PORTS
    if alert.source.address:
        event["src_ip"] = alert.source.address
        if ports:
            event["src_port"] = alert.source.port
        event["dest_ip"] = alert.destination.address
        if ports:
            event["dest_port"] = alert.destination.port
        event["proto"] = protocol_name(alert.protocol)
    details: dict[str, Any] = {
        "action": "allowed",
        "gid": signature.gid,
        "signature_id": signature.sid,
        "rev": signature.rev,
        "signature": signature.message,
        "category": signature.category,
        "severity": signature.priority,
    }
    if signature.metadata:
        details["metadata"] = {key: list(values) for key, values in signature.metadata.items()}
    if signature.references:
        details["references"] = list(signature.references)
    event["alert"] = details
    if alert.app_proto:
        event["app_proto"] = alert.app_proto
    event["direction"] = _DIRECTIONS[alert.direction]
    event.update(alert.details)
    return event


def engine_event(told: EventRecord) -> dict[str, Any]:
    """The event of what an engine told."""
    event: dict[str, Any] = {"timestamp": timestamp_text(told.timestamp), "flow_id": told.flow_id}
    if told.frame >= 0:
        event["pcap_cnt"] = told.frame + 1
    event["event_type"] = told.kind
    if told.vlans:
        event["vlan"] = list(told.vlans)
    ports = told.protocol in _WITH_PORTS
    event["src_ip"] = told.source.address
    if ports:
        event["src_port"] = told.source.port
    event["dest_ip"] = told.destination.address
    if ports:
        event["dest_port"] = told.destination.port
    event["proto"] = protocol_name(told.protocol)
    event.update(told.fields)
    return event


def flow_event(record: Any, number: int, alerted: bool) -> dict[str, Any]:
    """The `flow` event of a FLOW row that ended. number: its `flow_number`."""
    source, destination = flow_endpoints(record)
    protocol = int(record["protocol"])
    end = timestamp_text(int(record["last"]))
    event: dict[str, Any] = {
        "timestamp": end,
        "flow_id": number,
        "event_type": "flow",
    }
    if vlans := vlan_ids(record):
        event["vlan"] = list(vlans)
    event["src_ip"] = source.address
    if protocol in _WITH_PORTS:
        event["src_port"] = source.port
    event["dest_ip"] = destination.address
    if protocol in _WITH_PORTS:
        event["dest_port"] = destination.port
    event["proto"] = protocol_name(protocol)
    packets, size = record["packets"].tolist(), record["bytes"].tolist()
    flow: dict[str, Any] = {
        "pkts_toserver": packets[0],
        "pkts_toclient": packets[1],
        "bytes_toserver": size[0],
        "bytes_toclient": size[1],
        "start": timestamp_text(int(record["first"])),
        "end": end,
        "age": (int(record["last"]) - int(record["first"])) // 1_000_000_000,
    }
    state = TcpState(int(record["tcp_state"]))
    bypass = Bypass(int(record["bypass"]))
    if bypass is not Bypass.NONE:
        packets, size = record["bypassed_packets"].tolist(), record["bypassed_bytes"].tolist()
        flow["bypassed"] = {
            "pkts_toserver": packets[0],
            "pkts_toclient": packets[1],
            "bytes_toserver": size[0],
            "bytes_toclient": size[1],
        }
        flow["state"] = "bypassed"
        flow["bypass"] = bypass.name.lower()
    elif state in (TcpState.CLOSED, TcpState.CLOSING):
        flow["state"] = "closed"
    else:
        both = state is TcpState.ESTABLISHED or (protocol != 6 and packets[0] and packets[1])
        flow["state"] = "established" if both else "new"
    flow["reason"] = _REASONS.get(EndReason(int(record["end_reason"])), "forced")
    flow["alerted"] = alerted
    event["flow"] = flow
    if protocol == 6:
        toward = record["tcp_flags"].tolist()
        seen = toward[0] | toward[1]
        tcp: dict[str, Any] = {
            "tcp_flags": f"{seen:02x}",
            "tcp_flags_ts": f"{toward[0]:02x}",
            "tcp_flags_tc": f"{toward[1]:02x}",
        }
        tcp.update({name: True for bit, name in enumerate(_TCP_FLAG_NAMES) if seen >> bit & 1})
        tcp["state"] = _TCP_STATES[state]
        event["tcp"] = tcp
    return event


def stats_event(result: RunResult, now: int) -> dict[str, Any]:
    """The `stats` event of a whole run."""
    local = result.flows_bypassed.get("local", 0)
    capture = result.flows_bypassed.get("capture", 0)
    return {
        "timestamp": timestamp_text(now),
        "event_type": "stats",
        "stats": {
            "decoder": {"pkts": result.total.frames, "bytes": result.total.bytes},
            "capture": {"delivered_pkts": result.delivered.frames, "delivered_bytes": result.delivered.bytes},
            "flow": {"total": result.flows, "end": dict(result.flows_ended)},
            "flow_bypassed": {
                "local_pkts": result.bypassed_host.frames,
                "local_bytes": result.bypassed_host.bytes,
                "capture_pkts": result.bypassed_nic.frames,
                "capture_bytes": result.bypassed_nic.bytes,
                "local_flows": local,
                "capture_flows": capture,
            },
            "ips": {"blocked": result.dropped.frames},
            "detect": {
                "engines": [
                    {
                        "id": 0,
                        "rules_loaded": result.loaded_rules,
                        "rules_failed": len(result.skipped_rules),
                    }
                ],
                "alert": sum(result.alerts.values()),
            },
        },
    }


def _same_file(path: str, inputs: Sequence[str | Path]) -> str | Path | None:
    """The input that `path` is, or is a file right in; standard input is "-"."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return None
    for each in inputs:
        with suppress(OSError, ValueError):
            if os.path.samestat(status, os.fstat(0) if str(each) == "-" else Path(each).stat()) or (
                Path(each).is_dir() and Path(path).resolve().parent == Path(each).resolve()
            ):
                return each
    return None


class EveWriter:
    """Writes events as they come. After a failed write (a full disk, a pipe whose reader went away) the run may go on:
    `failure` says what happened, and the file ends with its last whole line. A standard output whose reader went away
    raises BrokenPipeError.
    """

    def __init__(self, path: str, types: Collection[str] = EVENT_TYPES, *, inputs: Sequence[str | Path] = ()) -> None:
        """Open the file ("-": standard output). What is in it stays until there is something to write.

        Raises InputError where it can't be written, or is one of `inputs` (files, or folders of them).
        """
        self._path = path
        self._types = frozenset(types)
        self._alerted: set[int] = set()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._whole = 0
        self._old = False
        self._last = 0
        self.events = 0
        self.failure: str | None = None
        if path == "-":
            self._descriptor = sys.stdout.fileno()
        elif not path:
            raise InputError("a file's name is empty", "--eve", "name a file, or - for standard output")
        else:
            if (read := _same_file(path, inputs)) is not None:
                raise InputError(
                    f"is read as {read}: events would overwrite it", f"--eve {path}", "choose another file"
                )
            try:
                self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except OSError as error:
                raise InputError(f"can't write EVE events: {error.strerror}", path, "choose another --eve") from None
            self._old = True

    def alerts(self, alerts: Sequence[AlertRecord]) -> None:
        """Write `alert` events."""
        for alert in alerts:
            self._last = max(self._last, alert.timestamp)
            if alert.flow_id:
                self._alerted.add(alert.flow_id)
            if "alert" in self._types:
                self._write(alert_event(alert))

    def told(self, events: Sequence[EventRecord]) -> None:
        """Write what the engine tells."""
        for event in events:
            self._last = max(self._last, event.timestamp)
            if event.kind in self._types:
                self._write(engine_event(event))

    def flows(self, records: NDArray[Any], actions: Sequence[str]) -> None:
        """Write `flow` events."""
        del actions
        self._last = max(self._last, int(np.max(records["last"], initial=0)))
        if "flow" not in self._types:
            self._alerted.difference_update(map(flow_number, records))
            return
        for record in records:
            number = flow_number(record)
            self._write(flow_event(record, number, number in self._alerted))
            self._alerted.discard(number)

    def finish(self, result: RunResult) -> None:
        """Write the `stats` event and close the file."""
        if "stats" in self._types:
            self._write(stats_event(result, self._last))
        self.close()

    def close(self) -> None:
        """Write what is pending and close the file."""
        try:
            self._flush()
        finally:
            self._close_file()

    def abandon(self) -> None:
        """Close the file after an error in the run: events that came before it are written."""
        with suppress(OSError):
            if self._pending:
                self._flush()
        self._close_file()

    def _close_file(self) -> None:
        if self._path != "-" and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, event: Mapping[str, Any]) -> None:
        if self.failure is not None:
            return
        line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
        self._pending.append(line)
        self._pending_bytes += len(line)
        self.events += 1
        if self._pending_bytes >= _FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._old:
            self._old = False
            with suppress(OSError):  # a device or a pipe has no length to set
                os.ftruncate(self._descriptor, 0)
        if not self._pending or self.failure is not None:
            return
        block = b"".join(self._pending)
        lines = len(self._pending)
        self._pending, self._pending_bytes = [], 0
        done = 0
        try:
            while done < len(block):
                done += os.write(self._descriptor, memoryview(block)[done:])
        except OSError as error:
            if self._path == "-" and isinstance(error, BrokenPipeError):
                raise
            kept = block.rfind(b"\n", 0, done) + 1
            self.events -= lines - block.count(b"\n", 0, kept)
            with suppress(OSError):  # a device or a pipe has no length to set
                os.ftruncate(self._descriptor, self._whole + kept)
            way_out = "its reader went away" if isinstance(error, BrokenPipeError) else "make room and run again"
            self.failure = (
                f"{self._path}: EVE events can't be written: {error.strerror} "
                f"(the first {self.events:,} events are whole; {way_out})"
            )
            return
        self._whole += len(block)
