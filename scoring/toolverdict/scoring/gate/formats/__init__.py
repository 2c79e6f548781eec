"""How a report of the gate is told: to people in a terminal, to CI systems, to code scanners.

All text from traces is hostile: each format escapes it once, in its own way.
"""
