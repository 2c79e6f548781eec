"""What ``configure`` decided, in one frozen object that every call reads once."""

import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from opentelemetry import trace

from toolverdict.instrument import guard
from toolverdict.instrument.approvals import Approver
from toolverdict.instrument.decisions import Decider
from toolverdict.instrument.errors import ConfigurationError
from toolverdict.instrument.hashing import HashKey
from toolverdict.instrument.outcomes import Interrupt

if TYPE_CHECKING:
    from toolverdict.instrument.stores.audit import AuditLog
    from toolverdict.instrument.stores.idempotency import IdempotencyStore

HASH_KEY_ENV: Final = "TOOLVERDICT_HASH_KEY"
SCOPE: Final = "toolverdict.instrument"
MAX_CAPTURED_BYTES: Final = 64 * 1024

Capture = Literal["off", "redacted", "full"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a call needs to know besides its own tool.

    Args:
        key: Hashes arguments and idempotency keys; None is that of a process without settings.
        policy: Decides; None allows everything.
        approver: Answers when a decision asks for approval.
        capture: Whether arguments, results and user input are recorded: ``off``, ``redacted``
            or ``full``.
        max_captured_bytes: What takes more than this many bytes is left out.
        interrupts: Exceptions of these classes wait for somebody and are no failure.
        idempotency: Keeps idempotency keys; None keeps none.
        audit: Keeps a record of every call; None keeps none.
        provider: Makes the spans; None is the global provider of the moment.
    """

    key: HashKey | None = None
    policy: Decider | None = None
    approver: Approver | None = None
    capture: Capture = "off"
    max_captured_bytes: int = MAX_CAPTURED_BYTES
    interrupts: tuple[Interrupt, ...] = ()
    idempotency: "IdempotencyStore | None" = None
    audit: "AuditLog | None" = None
    provider: trace.TracerProvider | None = None


_UNCONFIGURED: Final = Settings()


class _Current:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.settings: Settings | None = None
        self.process_key: HashKey | None = None
        self.unconfigured_key: HashKey | None = None
        self.provider_override: trace.TracerProvider | None = None
        self.tracer: tuple[trace.TracerProvider, trace.Tracer] | None = None


_current = _Current()


def current() -> Settings:
    """The settings in force; those of a process that never configured anything otherwise."""
    return _current.settings or _UNCONFIGURED


def replace(settings: Settings | None) -> Settings | None:
    """Put other settings in force; the earlier ones are returned."""
    earlier, _current.settings = _current.settings, settings
    return earlier


def override_provider(provider: trace.TracerProvider | None) -> trace.TracerProvider | None:
    """Send spans to this provider whatever is configured; the earlier override is returned."""
    earlier, _current.provider_override = _current.provider_override, provider
    return earlier


def tracer() -> trace.Tracer:
    """The tracer that makes our spans."""
    provider = _current.provider_override or current().provider or trace.get_tracer_provider()
    cached = _current.tracer
    # Asking the SDK for a tracer takes a lock and edits the warning filters: not for every call.
    if cached is not None and cached[0] is provider:
        return cached[1]
    made = provider.get_tracer(SCOPE)
    _current.tracer = (provider, made)
    return made


def key_from_environment() -> HashKey:
    """The key of ``TOOLVERDICT_HASH_KEY``, else this process's own random one.

    Raises:
        ConfigurationError: The variable is set and holds no usable key.
    """
    text = os.environ.get(HASH_KEY_ENV)
    return HashKey.of(text, source=HASH_KEY_ENV) if text else _process_key()


def hash_key(in_force: Settings) -> HashKey:
    """The key to hash with; made, and warned about, no sooner than it is needed."""
    if in_force.key is not None:
        return in_force.key
    if _current.unconfigured_key is None:
        try:
            _current.unconfigured_key = key_from_environment()
        except ConfigurationError as error:
            guard.note("hash key", "%s", error)
            _current.unconfigured_key = _process_key()
    return _current.unconfigured_key


def _process_key() -> HashKey:
    with _current.lock:
        if _current.process_key is not None:
            return _current.process_key
        _current.process_key = HashKey.ephemeral()
    guard.note(
        "hash key",
        "no hash key is set, so argument hashes of different processes will not match; set %s",
        HASH_KEY_ENV,
    )
    return _current.process_key
