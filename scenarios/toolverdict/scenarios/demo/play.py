"""Plays conversations: each in a world of its own, its spans sent over OTLP to a collector."""

import secrets
from collections.abc import Sequence
from pathlib import Path

from toolverdict.instrument import configure
from toolverdict.scenarios.demo import world
from toolverdict.scenarios.demo.agent import RefundAgent
from toolverdict.scenarios.demo.conversations import Conversation
from toolverdict.scenarios.demo.tools import TOOLS


def play(played: Sequence[Conversation], endpoint: str, policy: Path) -> None:
    """Plays each conversation with the agent and exports what happened.

    Args:
        played: what to play, in order.
        endpoint: OTLP/gRPC address of a collector, ``http://host:port``.
        policy: the policy file that the agent's calls are decided by.
    """
    configured = configure(
        service_name="refund-demo",
        endpoint=endpoint,
        protocol="grpc",
        policy=policy,
        approver=world.granted,
        hash_key=secrets.token_bytes(32),
        capture="full",
    )
    try:
        for conversation in played:
            world.enter(world.World(faults=conversation.faults))
            RefundAgent(conversation.model, TOOLS).handle(conversation.user, conversation.id)
    finally:
        configured.shutdown()
