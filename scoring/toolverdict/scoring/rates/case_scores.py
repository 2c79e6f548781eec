"""What a trajectory adds to the rates that only a case makes possible."""

from toolverdict.scoring.model import CaseScores, Share, Verdict


def case_shares(verdict: Verdict) -> dict[str, Share]:
    """The share by rate, unweighted; nothing without a case."""
    scores = verdict.scores
    if scores is None:
        return {}
    return {
        **_counts(scores),
        **{
            name: Share(value, 1)
            for name, value in (
                ("selection_accuracy_macro", scores.selection),
                ("argument_accuracy_macro", scores.arguments.value),
                ("call_timing_accuracy_macro", scores.order.value),
                ("result_handling_macro", verdict.result_handling),
            )
            if value is not None
        },
        **scores.need_shares,
    }


def _counts(scores: CaseScores) -> dict[str, Share]:
    pairs = scores.pairs
    return {
        "selection_accuracy": scores.selection_share,
        "selection_precision": Share(pairs, pairs + scores.extra),
        "selection_precision_raw": Share(pairs, scores.raw_calls),
        "selection_recall": Share(pairs, pairs + scores.missing),
        "argument_accuracy": scores.arguments,
        "argument_accuracy_first_attempt": scores.arguments_first_attempt,
        "argument_accuracy_high_risk": scores.arguments_high_risk,
        "argument_key_score": scores.keys,
        "call_timing_accuracy": scores.order,
    }
