"""Thinning: while folders are compacted, somebody says what is kept of their traces."""

from typing import Protocol

import pyarrow as pa

from toolverdict.collector.signals import Signal


class Thinning(Protocol):
    """What decides about traces, and applies it to the rows of one folder after the other.

    A trace is decided once, as a whole and before any row of it is written by it: its rows are met
    in each hour that it is in, again when a folder is compacted once more, and some of them late.
    So whatever was decided has to be known as long as its rows may come.
    """

    def thin(self, signal: Signal, table: pa.Table) -> pa.Table:
        """What is kept of the rows of one folder; those of undecided traces pass as they are.

        Args:
            signal: what the rows are.
            table: with all columns of the signal and any newer ones, in the order of the lake.

        Returns:
            A table with the same columns, in the same order.

        Raises:
            LakeError: when a trace id is not one; the folder stays as it is then.
        """

    def undecided(self, table: pa.Table) -> int:
        """How many rows are of a trace that is not decided; rows without a trace id are not.

        Args:
            table: any rows; only the column ``trace_id`` is looked at.

        Raises:
            LakeError: when a trace id is not one.
        """
