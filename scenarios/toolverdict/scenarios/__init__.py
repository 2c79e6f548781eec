"""The stage on which an agent is tested before release."""
