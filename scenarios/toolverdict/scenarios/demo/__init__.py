"""A refund agent plays scripted conversations, good and bad, over the whole road."""
