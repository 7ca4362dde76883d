"""How many frames are under way at a time."""

DEFAULT_BURST = 16384
"""Frames in a burst: what the card takes in while the host looks at the burst before; a verdict takes effect with the
next one. At 20 million frames a second (100 Gbit/s of mixed sizes) this is 0.8 ms."""
