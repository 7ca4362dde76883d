"""Events of decoding: what is odd about a frame's headers, by Suricata's names (`decode-event`).

Nearly all frames are plain, which compiled code tells; the others are walked again, layer by layer, in Python.
"""
