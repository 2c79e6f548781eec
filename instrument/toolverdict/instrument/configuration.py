"""``configure``: one call at the start of a process that says where spans go and who decides."""

import os
from collections.abc import Collection
from typing import TYPE_CHECKING, get_args

from toolverdict.instrument import guard, settings
from toolverdict.instrument.approvals import Approver
from toolverdict.instrument.errors import ConfigurationError
from toolverdict.instrument.hashing import HashKey
from toolverdict.instrument.outcomes import Interrupt
from toolverdict.instrument.settings import MAX_CAPTURED_BYTES, Capture, Settings

if TYPE_CHECKING:
    from toolverdict.instrument.export import Outlet, Protocol
    from toolverdict.instrument.policy import Policy
    from toolverdict.instrument.stores.audit import AuditLog
    from toolverdict.instrument.stores.idempotency import IdempotencyStore


class Telemetry:
    """What ``configure`` set up, to be flushed and shut down."""

    def __init__(self, outlet: "Outlet", audit: "AuditLog | None" = None) -> None:
        self._outlet = outlet
        self._audit = audit

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Deliver the spans that ended so far.

        Args:
            timeout_s: How long to wait.

        Returns:
            Whether the collector accepted all of them in time. Spans that go to the application's
            own provider are its own to flush, and True is returned.
        """
        return self._outlet.flush(timeout_s)

    def shutdown(self) -> None:
        """Deliver what waits, stop exporting, and emit the audit log's last checkpoint.

        Done at the end of the process by itself.
        """
        if self._audit is not None:
            self._audit.flush()
        self._outlet.shutdown()


def configure(
    *,
    service_name: str | None = None,
    endpoint: str | None = None,
    protocol: "Protocol | None" = None,
    policy: "str | os.PathLike[str] | Policy | None" = None,
    approver: Approver | None = None,
    hash_key: bytes | str | HashKey | None = None,
    capture: Capture = "off",
    max_captured_bytes: int = MAX_CAPTURED_BYTES,
    interrupts: Collection[Interrupt] = (),
    idempotency: "IdempotencyStore | None" = None,
    audit: "AuditLog | None" = None,
) -> Telemetry:
    """Set this process up. Calling it again replaces every setting, and logs what that drops.

    What is not given is taken from the ``OTEL_*`` environment variables, and the hash key from
    ``TOOLVERDICT_HASH_KEY``. If the application has an OpenTelemetry SDK provider already, spans go
    there, and to ``endpoint`` as well if one is given.

    Args:
        service_name: What this process is called in its spans.
        endpoint: Where the collector listens: ``http://host:4317`` for gRPC, ``http://host:4318``
            for HTTP.
        protocol: ``grpc`` or ``http/protobuf``; guessed from the endpoint by default.
        policy: A policy file, or a policy; without one every call is allowed.
        approver: Is asked when the policy requires an approval.
        hash_key: Keys the hashes of arguments: at least 16 bytes, or hexadecimal text.
        capture: ``full`` records arguments, results and user input, ``redacted`` does without
            the secrets and personal data that can be told for certain (see ``redaction``), and
            ``off`` records none of them.
        max_captured_bytes: What is longer than this is left out and flagged.
        interrupts: Exceptions that pause a tool until somebody answers, besides those of LangGraph
            and pydantic-ai: classes, or ``"module.Class"``. Their outcome is ``pending_approval``.
        idempotency: Keeps the keys of calls that have one, so that each takes effect once. It needs
            a hash key: those of another process would be other keys otherwise.
        audit: Keeps a record of every call, before its body runs and after.

    Raises:
        ConfigurationError: A setting cannot be used.
        PolicyError: The policy file cannot be read or is not a policy.
    """
    if capture not in get_args(Capture):
        raise ConfigurationError(
            f"capture is {capture!r}; use one of {', '.join(get_args(Capture))}"
        )
    _check_approver(approver)
    key = settings.key_from_environment() if hash_key is None else HashKey.of(hash_key)
    if idempotency is not None:
        from toolverdict.instrument.stores import row_keys
        from toolverdict.instrument.stores.idempotency import IdempotencyStore

        _check_type("idempotency", idempotency, IdempotencyStore)
        row_keys.lasting(key, "idempotency keys need")
    if audit is not None:
        from toolverdict.instrument.stores.audit import AuditLog

        _check_type("audit", audit, AuditLog)
    loaded = _loaded(policy)

    from toolverdict.instrument import export

    provider, outlet = export.set_up(service_name, endpoint, protocol)
    made = Settings(
        key=key,
        policy=loaded,
        approver=approver,
        capture=capture,
        max_captured_bytes=max_captured_bytes,
        interrupts=_interrupts(interrupts),
        idempotency=idempotency,
        audit=audit,
        provider=provider,
    )
    earlier = settings.replace(made)
    if earlier is not None:
        _note_dropped(earlier, made)
    return Telemetry(outlet, audit)


def _note_dropped(earlier: Settings, now: Settings) -> None:
    """Say what a second ``configure`` has switched off, which is easily not meant."""
    names = ("policy", "approver", "idempotency", "audit")
    dropped = [
        name for name in names if getattr(earlier, name) is not None and getattr(now, name) is None
    ]
    if earlier.capture != "off" and now.capture == "off":
        dropped.append("capture")
    if dropped:
        guard.note(
            "configure",
            "configure() replaces every setting of the one before, and dropped: %s;"
            " give all of them in one call",
            ", ".join(dropped),
        )
    if earlier.audit is not None and earlier.audit is not now.audit:
        earlier.audit.flush()


def _check_type(setting: str, given: object, kind: type) -> None:
    if not isinstance(given, kind):
        wanted = f"{kind.__name__}(path)"
        raise ConfigurationError(f"{setting} is of type {type(given).__name__}; give {wanted}")


def _check_approver(given: object) -> None:
    if given is None or callable(given):
        return
    store = callable(getattr(given, "approver", None))
    wanted = (
        "store.approver()" if store else "a function of an ApprovalRequest, or store.approver()"
    )
    raise ConfigurationError(f"approver is of type {type(given).__name__}; give {wanted}")


def _interrupts(given: Collection[Interrupt]) -> tuple[Interrupt, ...]:
    for known in () if isinstance(given, str) else given:
        named = isinstance(known, str) and "." in known
        if not named and not (isinstance(known, type) and issubclass(known, BaseException)):
            raise ConfigurationError(
                f"interrupts holds {known!r}; give exception classes or 'module.Class'"
            )
    if isinstance(given, str):
        raise ConfigurationError("interrupts is a list of exception classes or 'module.Class'")
    return tuple(given)


def _loaded(policy: "str | os.PathLike[str] | Policy | None") -> "Policy | None":
    if policy is None:
        return None
    from toolverdict.instrument.policy import Policy

    if isinstance(policy, Policy):
        return policy
    if not isinstance(policy, str | os.PathLike):
        raise ConfigurationError(
            f"policy is of type {type(policy).__name__}; give a path, or Policy.parse(text)"
        )
    return Policy.load(policy)
