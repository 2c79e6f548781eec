"""Tail sampling: quiet traces of a lake are kept or dropped as a whole, with a known probability.

The lake keeps every span when it arrives. When closed hours are compacted, a
:class:`~toolverdict.collector.sampling.sampler.Sampler` decides the traces that have gone quiet by a
:class:`~toolverdict.collector.sampling.policy.SamplingPolicy`, and writes into ``trace_state`` of
every span that stays what it stands for. So weighted rates are unbiased before and after.
"""
