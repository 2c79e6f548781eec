"""Tools as they are defined, beside how they are called: versions, and descriptions that overlap."""
