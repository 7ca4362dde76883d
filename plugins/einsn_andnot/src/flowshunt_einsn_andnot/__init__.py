"""And-not: a complement and an AND as one instruction."""
