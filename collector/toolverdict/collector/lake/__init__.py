"""The lake, and how to read it: the contract between the collector and everyone else.

::

    DIR/lake.json                                  format, version and number of buckets
    DIR/spans/date=2026-11-30/hour=14/bucket=00/part-<segment id>-<n>.parquet
                                               part-compacted-<digest>.parquet
    DIR/logs/...                                   the same for log records
    DIR/wal/                                       the collector's own; no reader looks there

``date`` and ``hour`` are the UTC hour in which the collector began the segment, never a time that
a client sent. ``bucket`` is decimal with at least two digits: the last byte of the trace id modulo
the number of buckets, so all spans of a trace, however late they came, are in one bucket. A log
record without a trace id is in bucket 0. A file that is being written has a name that starts with a
dot; readers see a part whole or not at all. Instead of DIR there may be a URL of an object store.

To read a lake::

    lake = Lake.open("data")
    for bucket in range(lake.buckets):
        spans = lake.read_spans(bucket, ["trace_id", "span_id", "name", "gen_ai.tool.name"])
        logs = lake.read_logs(bucket)
"""

from toolverdict.collector.lake.layout import (
    FOLDERS,
    LAKE_FORMAT,
    LAKE_VERSION,
    MAX_BUCKETS,
    bucket_folder,
)
from toolverdict.collector.lake.reading import Lake

__all__ = [
    "FOLDERS",
    "LAKE_FORMAT",
    "LAKE_VERSION",
    "MAX_BUCKETS",
    "Lake",
    "bucket_folder",
]
