"""Address calculations: base, scaled index and displacement in one instruction."""
