"""Which span a failed trajectory is to be blamed on, how sure that is, and what others call it."""
