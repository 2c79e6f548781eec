"""The failure report: a sample of what went wrong, by tool, error and category, with its evidence."""
