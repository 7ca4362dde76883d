"""Frame and byte counters that every NIC keeps, for NIC models to count with."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowshunt.nic import NicStatistics
from flowshunt.packets.batch import FrameBatch

MAX_ACTIONS = 256


class NicCounters:
    """Counts of frames and of bytes on the wire: in all, delivered, by host buffer, by action number."""

    def __init__(self, host_buffers: int) -> None:
        self.frames = 0
        self.bytes = 0
        self.delivered = 0
        self.delivered_bytes = 0
        self._buffer_frames = np.zeros(host_buffers, np.int64)
        self._buffer_bytes = np.zeros(host_buffers, np.int64)
        self._action_frames = np.zeros(MAX_ACTIONS, np.int64)
        self._action_bytes = np.zeros(MAX_ACTIONS, np.int64)

    def count(
        self,
        batch: FrameBatch,
        delivered: FrameBatch,
        host_buffer: NDArray[np.uint16],
        action: NDArray[np.uint8] | None = None,
    ) -> None:
        """Count a batch, the part of it that was delivered with its host buffers, and each frame's action number."""
        self.frames += len(batch)
        self.bytes += int(batch.wire.sum(dtype=np.int64))
        self.delivered += len(delivered)
        self.delivered_bytes += int(delivered.wire.sum(dtype=np.int64))
        buffers = len(self._buffer_frames)
        self._buffer_frames += np.bincount(host_buffer, minlength=buffers)
        self._buffer_bytes += np.bincount(host_buffer, weights=delivered.wire, minlength=buffers).astype(np.int64)
        if action is not None:
            self._action_frames += np.bincount(action, minlength=MAX_ACTIONS)
            self._action_bytes += np.bincount(action, weights=batch.wire, minlength=MAX_ACTIONS).astype(np.int64)

    def statistics(self, action_names: dict[int, str] | None = None, **flow_counts: Any) -> NicStatistics:
        """The counters as the contract has them; `flow_counts` are the fields of `NicStatistics` that concern flows."""
        by_action: dict[str, tuple[int, int]] = {}
        for number, name in (action_names or {}).items():
            frames, size = by_action.get(name, (0, 0))
            by_action[name] = (
                frames + int(self._action_frames[number]),
                size + int(self._action_bytes[number]),
            )
        return NicStatistics(
            frames=self.frames,
            bytes=self.bytes,
            delivered=self.delivered,
            delivered_bytes=self.delivered_bytes,
            withheld=self.frames - self.delivered,
            withheld_bytes=self.bytes - self.delivered_bytes,
            by_action=by_action,
            host_buffer_frames=tuple(self._buffer_frames.tolist()),
            host_buffer_bytes=tuple(self._buffer_bytes.tolist()),
            **flow_counts,
        )
