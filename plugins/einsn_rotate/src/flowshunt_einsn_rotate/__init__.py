"""Rotates: two shifts and an OR as one instruction."""
