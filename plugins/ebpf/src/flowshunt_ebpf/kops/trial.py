"""Running variants of a program against each other on the same packets, each with maps and a machine of its own."""

import time
from collections.abc import Callable, Mapping, Sequence

import attrs
import numpy as np

from flowshunt.errors import InputError
from flowshunt_ebpf.contexts.layout import MEMORY, Context
from flowshunt_ebpf.native.host import HostProgram, host
from flowshunt_ebpf.native.image import Image
from flowshunt_ebpf.native.machine import MAX_PACKET_ROOM, PACKET_ROOM, Machine
from flowshunt_ebpf.native.measure import EMPTY, Timer, Timing, compare
from flowshunt_ebpf.native.verdict import Verdict, digest
from flowshunt_ebpf.native.workbench import Workbench
from flowshunt_ebpf.program import Program


def verified(image: Image, machine: Machine) -> Verdict:
    """Our verifier's verdict about an image. Raises InputError where it rejects it, with what and where."""
    from flowshunt_ebpf.verifier import verify_cached

    verdict = verify_cached(image.as_loaded(), context=image.context)
    if not verdict.accepted:
        raise InputError(
            f"it is not safe: {verdict.reason}", f"program {image.program.name}", "see flowshunt bpf verify"
        )
    return verdict


@attrs.frozen(eq=False)
class Trial:
    """What variants are run on.

    Attributes:
        context: what r1 is.
        packets: frames, or one piece of bare memory.
        others: the other programs of the object, for tail calls.
        fill: fills the maps of a workbench.
        judge: the verifier.
        rounds: how often each variant is timed.
        seconds: about how long each time.
    """

    context: Context
    packets: Sequence[bytes]
    others: Mapping[str, Callable[[], Program]] = attrs.field(factory=dict)
    fill: Callable[[Workbench], None] = lambda bench: None
    judge: Callable[[Image, Machine], Verdict] = verified
    rounds: int = 9
    seconds: float = 0.02
    _verdicts: dict[bytes, Verdict] = attrs.field(factory=dict, init=False)

    def workbench(self, program: Program) -> Workbench:
        """A variant with its maps filled."""
        room = max(PACKET_ROOM, min(max(map(len, self.packets), default=0), MAX_PACKET_ROOM))
        bench = Workbench(program, self.others, context=self.context, packet_room=room)
        self.fill(bench)
        return bench

    def load(self, program: Program) -> HostProgram:
        """A variant as native code. Raises InputError where the verifier rejects it."""
        bench = self.workbench(program)
        return host(bench.image, bench.machine, bench.judge(self._judged))

    def _judged(self, image: Image, machine: Machine) -> Verdict:
        """The verdict about an image; each is asked for once."""
        key = digest(image.as_loaded(), image.context)
        if key not in self._verdicts:
            self._verdicts[key] = self.judge(image, machine)
        return self._verdicts[key]

    def timer(self, loaded: HostProgram) -> Timer:
        """Runs a program on the packets, one after another; gives ns per packet, of the processor's time."""
        if self.context is MEMORY or len(self.packets) < 2:
            return self._on_one(loaded)
        from flowshunt_ebpf.native.batch import BatchDriver

        driver = BatchDriver(loaded)
        data = np.frombuffer(b"".join(self.packets) or b"\0", np.uint8)
        length = np.array([len(packet) for packet in self.packets], np.uint32)
        offset = np.concatenate([[0], np.cumsum(length, dtype=np.int64)[:-1]]).astype(np.int64)

        def run(repeat: int) -> float:
            times = -(-repeat // len(self.packets))
            # Many frames at once, so that the call itself does not count.
            offsets, lengths = np.tile(offset, times), np.tile(length, times)
            start = time.thread_time_ns()
            driver.run_columns(data, offsets, lengths)
            return (time.thread_time_ns() - start) / len(offsets)

        run(1)  # what is loaded with the first call is no part of the second
        return run

    def _on_one(self, loaded: HostProgram) -> Timer:
        """On one packet that stays where it is: without the copy that would drown a short program."""

        def run(repeat: int) -> float:
            loaded.machine.set_packet(self.packets[0] if self.packets else b"")
            return loaded.time(repeat)

        return run

    def measure(self, variants: Mapping[str, Program]) -> dict[str, Timing]:
        """Time variants in interleaved rounds, the empty program's time subtracted; the first is the ratios' base."""
        loaded = {name: self.load(program) for name, program in variants.items()}
        empty = Trial(self.context, self.packets, judge=self.judge).load(
            Program.from_bytes(EMPTY, type=self.context.program_type)
        )
        floor = self.timer(empty)
        timings = compare(
            {name: self.timer(one) for name, one in loaded.items()},
            dict.fromkeys(loaded, floor),
            rounds=self.rounds,
            seconds=self.seconds,
        )
        return {timing.name: timing for timing in timings}
