"""The tables of ``docs/tensorboard.md``."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "tensorboard.md"


def rows(heading: str) -> list[dict[str, str]]:
    """The rows of the table below a heading, each by its columns' names."""
    text = PAGE.read_text(encoding="utf-8")
    _, _, below = text.partition(f"\n## {heading}\n")
    lines = [line for line in below.partition("\n## ")[0].splitlines() if line.startswith("|")]
    names, _, *cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [dict(zip(names, each, strict=True)) for each in cells]
