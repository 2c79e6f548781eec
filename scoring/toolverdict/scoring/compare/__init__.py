"""Two versions of an agent side by side: what got worse, what got better, and how sure that is."""
