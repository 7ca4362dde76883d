"""flowshunt: move work off the slow path, safely and only where it pays.

This package is the core: the four contracts that plugins fulfil (`nic`, `action`, `operation`, `engine`), their
discovery (`plugins`), frames (`packets`), flows (`flows`), the pipeline that ties them together (`pipeline`), its
output (`output`) and the command (`cli`). Heavy libraries are imported where they are used, never here.
"""

import pluggy

__version__ = "0.1.0"

hookimpl = pluggy.HookimplMarker("flowshunt")
"""Marks a plugin's implementation of one of the hooks in `flowshunt.hookspecs`."""

__all__ = ["__version__", "hookimpl"]
