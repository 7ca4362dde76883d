"""Sample traffic: a capture of any size, made from a seed, with planted attacks whose alerts are known."""

from flowshunt.packets.sample.summary import PlantedAlert, SampleSummary
from flowshunt.packets.sample.write import write_sample

__all__ = ["PlantedAlert", "SampleSummary", "write_sample"]
