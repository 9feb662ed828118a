"""The rule by which the default optimizer is chosen, on runs whose answer is known."""

from __future__ import annotations

import pytest

from benchmarks import defaults
from benchmarks.learning import ENVIRONMENTS, Run


def runs(**scores: float) -> list[Run]:
    """Runs of every combination, which score 0 or what is given for their environment (``first``, ``second``)."""
    at = dict(zip(ENVIRONMENTS, (scores.get("first", 0.0), scores.get("second", 0.0), 0.0), strict=True))
    return [
        Run(name, environment, seed, defaults.STEPS, [at[environment] if name == "AdaptiveUPGD" else 0.0] * 4)
        for name in defaults.COMBINATIONS
        for environment in ENVIRONMENTS
        for seed in defaults.SEEDS
    ]


@pytest.mark.parametrize(
    ("scores", "chosen"),
    [
        ({}, "Adam"),
        ({"first": 1.0}, "AdaptiveUPGD"),
        ({"first": -1.0}, "Adam"),
        ({"first": 1.0, "second": -1.0}, "Adam"),
    ],
    ids=["alike", "better in one", "worse in one", "better in one and worse in another"],
)
def test_the_simpler_one_is_chosen_unless_the_other_is_better_somewhere_and_worse_nowhere(
    scores: dict[str, float], chosen: str
) -> None:
    (line,) = [each for each in defaults.report(runs(**scores)).splitlines() if "AdaptiveUPGD, against Adam |" in each]
    assert line.endswith(f"| {chosen} |")


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [(0.1, 1.0, "better"), (-1.0, -0.1, "worse"), (0.0, 1.0, "no difference seen"), (-1.0, 0.0, "no difference seen")],
)
def test_an_interval_that_touches_zero_shows_no_difference(lower: float, upper: float, expected: str) -> None:
    assert defaults.answer(lower, upper) == expected
