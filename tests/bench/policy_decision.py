"""What a decision costs: 15 rules, four kinds of calls. Run it: python tests/bench/policy_decision.py."""

import timeit
from functools import partial
from types import MappingProxyType

from toolverdict.instrument.decisions import Call, Earlier
from toolverdict.instrument.policy import Policy

RULES = """
version: 1
id: bench
rules:
  - {id: d1, effect: deny, tools: [delete_user]}
  - {id: d2, effect: deny, tools: ["admin.*"]}
  - {id: d3, effect: deny, labels: [permission]}
  - {id: d4, effect: deny, tools: [refund], args: {amount: {range: {min: 10000}}}}
  - {id: d5, effect: deny, tools: [send_mail], unless_after: [verify_identity]}
  - {id: d6, effect: deny, agents: ["intern-*"], labels: [payment]}
  - {id: d7, effect: deny, tools: [read_file], args: {path: {prefix: [/etc/, /root/]}}}
  - {id: d8, effect: deny, tools: ["*_without_policy"]}
  - {id: q1, effect: require_approval, tools: [refund], args: {amount: {range: {min: 500}}}}
  - {id: q2, effect: require_approval, labels: [external_message], agents: ["guest-*"]}
  - {id: q3, effect: require_approval, tools: [close_account]}
  - {id: q4, effect: require_approval, tools: [grant], approval: {ttl_s: 60}}
  - id: a1
    effect: allow
    tools: [refund]
    requires: [verify_identity]
    limits: {per_trajectory: 3}
    args:
      amount: {range: {min: 0, max: 1000}}
      currency: {in: [EUR, USD, CHF]}
      order_id: {pattern: "ord_[0-9]{4,12}"}
  - {id: a2, effect: allow, tools: [send_mail], args: {to: {suffix: "@shop.example"}}}
  - {id: a3, effect: allow, tools: ["get_*"]}
"""


def main() -> None:
    """Print microseconds per decision, the best of five."""
    decide = Policy.parse(RULES).decide
    done = frozenset({"verify_identity", "get_order"})
    arguments = {"amount": 12.5, "currency": "EUR", "order_id": "ord_12345"}
    earlier = [Earlier("verify_identity"), Earlier("get_order")]

    def refund(**more: object) -> Call:
        frozen = MappingProxyType({**arguments, **more})
        labels = frozenset({"write", "payment"})
        return Call("refund", labels, "bot", done, frozen, earlier=earlier, at_s=1.0)

    calls = {
        "read, no arguments looked at": Call("get_order", frozenset({"read"}), "bot", done),
        "refund, allowed": refund(),
        "refund, approval": refund(amount=700),
        "refund, denied": refund(amount=50_000),
        "refund, not captured": Call("refund", frozenset({"payment"}), "bot", done),
        "mail, denied by default": Call(
            "send_mail", frozenset({"external_message"}), "bot", done, {"to": "eve@evil.example"}
        ),
    }
    for name, call in calls.items():
        best = min(timeit.repeat(partial(decide, call), number=20_000, repeat=5)) / 20_000
        print(f"{best * 1e6:6.2f} us  {decide(call).effect:17}{name}")


if __name__ == "__main__":
    main()
