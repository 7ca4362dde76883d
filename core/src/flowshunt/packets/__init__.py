"""Frames: capture files, batches, header decoding, checksums, sample traffic."""
