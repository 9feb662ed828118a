"""A plot that takes no time."""

from toyproject.probes.make import Make

from rlverify import Line, Plot, plot


@plot("toy-squares")
def squares(_make: Make) -> Plot:
    positions = (0.0, 1.0, 2.0, 3.0)
    return Plot("Squares", "x", "x squared", positions, (Line("x^2", tuple(x * x for x in positions)),), "Exact.")
