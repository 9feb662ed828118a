"""Values that wait for the next row of the log."""

from __future__ import annotations

from typing import Any, cast

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.logger import Logger

from rlcore.checkpoint import codec
from rlcore.state.schema import misfit, read_count, read_dict, read_list, read_record
from rlcore.types import StateDict


def capture_log(model: BaseAlgorithm) -> StateDict | None:
    """Return the values that were recorded since the last row of the log was written; None before ``learn()``.

    Figures, images and other objects that a user's callback records are left out.
    """
    logger: Logger | None = getattr(model, "_logger", None)
    if logger is None:
        return None
    values: dict[str, Any] = {name: codec.encode(value, name) for name, value in logger.name_to_value.items()}
    return {
        "values": {name: value for name, value in values.items() if not isinstance(value, dict)},
        "counts": {name: int(count) for name, count in logger.name_to_count.items()},
        "excluded": {name: list(formats) for name, formats in logger.name_to_excluded.items()},
    }


def restore_log(model: BaseAlgorithm, state: StateDict | None) -> None:
    """Give ``model`` a logger that writes nothing and holds ``state``; ``learn()`` replaces it.

    :raises StateError: ``state`` is not from :func:`capture_log`
    """
    if state is not None:
        logger = Logger(folder=None, output_formats=[])
        put_into_log(logger, state)
        model._logger = logger


def put_into_log(logger: Logger, state: StateDict) -> None:
    """Record the values of :func:`capture_log` in ``logger``.

    :raises StateError: ``state`` is not from :func:`capture_log`; nothing was recorded
    """
    record = read_record(state, "log", ("values", "counts", "excluded"))
    values, counts, excluded = (read_dict(record[name], f"log[{name!r}]") for name in ("values", "counts", "excluded"))
    for name, value in values.items():
        if not isinstance(value, int | float | str) and value is not None:
            raise misfit(f"log['values'][{name!r}]", "a number or a text", value)
    formats: Any = {name: tuple(read_list(value, f"log['excluded'][{name!r}]")) for name, value in excluded.items()}
    logger.name_to_value.update(cast("dict[str, float]", values))
    logger.name_to_count.update({str(name): read_count(count, "log['counts']") for name, count in counts.items()})
    logger.name_to_excluded.update(formats)
