"""Maps and helpers in user space, as native code over raw memory. The same code serves every runner."""
