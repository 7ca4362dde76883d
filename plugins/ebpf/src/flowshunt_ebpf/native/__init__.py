"""Native code: the assembler's seam, both JITs, the machine that programs run on, and the runners."""
