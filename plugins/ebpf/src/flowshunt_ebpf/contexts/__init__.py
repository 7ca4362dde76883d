"""What a program gets in r1: the kernel's context layouts, and how loads and stores through them are rewritten."""
