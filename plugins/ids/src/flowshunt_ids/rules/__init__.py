"""The rule language: from text to `Rule`."""
