"""Bypass modes: who acts on the rest of a flow that the engine has seen enough of."""

import enum


class BypassMode(enum.StrEnum):
    """OFF: nobody, every frame is inspected. SOFTWARE: the host skips it. HARDWARE: the NIC's flow table acts on it."""

    OFF = "off"
    SOFTWARE = "software"
    HARDWARE = "hardware"
