"""`python -m flowshunt`: the command."""

from flowshunt.cli import main

main()
