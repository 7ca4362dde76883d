"""Conditional selects: branches around moves as compare and conditional move."""
