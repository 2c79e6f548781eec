"""The policy file: which tool calls are allowed, denied, or need an approval.

Importing this package imports pydantic and YAML; ``configure`` does so when a policy is loaded.

How a call is decided. A rule *restricts* when it denies, asks for approval, or makes demands
(``requires``, ``stages``, ``limits``, ``idempotency``); it *permits* when its effect is allow. Every
doubt goes against the call: a restriction matches a tool's name with or without its server
(``names.same_tool``), an agent that is unknown, and arguments that are missing or of another type;
a permission matches the full name, a known agent and certain arguments only. Then, over all rules
that match:

1. a deny denies, and so does an unmet ``requires`` or ``unless_after``, a call out of its stage, one
   too many, or one without the idempotency key that it needs;
2. else a require_approval asks for approval;
3. else a permission allows;
4. else the call is denied if the tool has a dangerous label, and allowed if not.

A call "succeeded" for ``requires`` when its outcome was ``ok``; an empty answer satisfies nothing.
What is not known about a call counts against it, too, and ``Decision.at_best`` says what would be
decided if it spoke for the call: a scorer takes the difference for "not evaluable".

Read ``document`` for what a file may say, ``conditions`` for arguments, ``rules`` for one rule,
``deciding`` for the order above, ``check`` for what is suspicious about a file that can be read.
"""

from toolverdict.instrument.policy.document import POLICY_VERSION, Rule
from toolverdict.instrument.policy.policy import Policy

__all__ = ["POLICY_VERSION", "Policy", "Rule"]
