"""A plot that takes no time."""

from toyproject import target
from toyproject.probes.make import Make

from rlverify import Line, Plot, get_fault, plant, plot


@plot("toy-squares")
def squares(_make: Make) -> Plot:
    positions = (0.0, 1.0, 2.0, 3.0)
    with plant(get_fault("clip-one-sided")):
        values = tuple(target.clip(x * x, 5.0, 10.0) for x in positions)
    return Plot("Squares", "x", "x squared", positions, (Line("x^2", values),), "Exact.")
