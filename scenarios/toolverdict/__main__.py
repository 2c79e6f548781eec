"""``python -m toolverdict``."""

from toolverdict.cli import main

main()
