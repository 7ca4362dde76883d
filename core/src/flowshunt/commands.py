"""The commands of the core, by name: known without importing them, and not to be replaced by a plugin's."""

from collections.abc import Mapping

CORE_COMMANDS: Mapping[str, str] = {
    "demo": "Make sample traffic and compare the three bypass modes on it.",
    "run": "Inspect captures through a NIC model, with or without bypass.",
    "compare": "Run captures with bypass off, in software and in hardware.",
    "model": "Estimate lossless throughput, and what packet loss costs.",
    "sample": "Write a sample capture and what an engine should find in it.",
    "plugins": "List, show, make and check plugins.",
}
"""Each command's line in `flowshunt --help`; the command is `flowshunt.cli.NAME.command`."""
