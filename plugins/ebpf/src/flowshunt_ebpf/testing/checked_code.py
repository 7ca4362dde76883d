"""The host runner's code that checks each access at run time, and verdicts by hand: for tests of the code generators.

Nothing outside of tests may use it: what runs on the host is verified.
"""

from flowshunt_ebpf.native.host import HostProgram
from flowshunt_ebpf.native.image import Image
from flowshunt_ebpf.native.machine import Machine
from flowshunt_ebpf.native.verdict import Verdict, digest, issue


class CheckedProgram(HostProgram):
    """An image without a verdict: every access, call and argument is looked up at run time, and a budget ends it."""

    def __init__(self, image: Image, machine: Machine) -> None:
        self.verdict = None
        self._load(image, machine, checked=True, budget=True)


def host_checked(image: Image, machine: Machine) -> HostProgram:
    """Load a program as native code that checks itself."""
    return CheckedProgram(image, machine)


def vouched(image: Image, *, writes_packet: bool = True) -> Verdict:
    """A verdict about an image that the test itself knows to be safe."""
    said = Verdict(True, digest(image.as_loaded(), image.context), "a test", writes_packet=writes_packet)
    return issue(said)
