"""States of random generators as plain values: the global ones of Python, NumPy and torch, and NumPy's Generator."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rlcore.errors import StateError
from rlcore.state.tree import FREE, REMEDY, Rule, fit, misfit
from rlcore.types import StateDict, StateValue


def capture_generators() -> StateDict:
    """The state of Python's, NumPy's and torch's global generators."""
    version, internal, gauss = random.getstate()
    _, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(internal), gauss],
        "numpy": [torch.from_numpy(np.asarray(keys).astype(np.int64)), int(position), int(has_gauss), float(cached)],
        "torch": torch.get_rng_state(),
        "cuda": list(torch.cuda.get_rng_state_all()) if torch.cuda.is_initialized() else [],  # type: ignore[no-untyped-call]
    }


def apply_generators(state: StateDict) -> None:
    """Set the global generators to a state captured by ``capture_generators``."""
    fields: Any = state
    random.setstate(_python_state(fields))
    np.random.set_state(_numpy_state(fields))
    torch.set_rng_state(fields["torch"].cpu())
    if fields["cuda"] and torch.cuda.device_count() == len(fields["cuda"]):
        torch.cuda.set_rng_state_all([t.cpu() for t in fields["cuda"]])


def check_generators(state: StateDict) -> None:
    """
    :raises StateError: for what no generator of its kind takes
    """
    names = ("python", "numpy", "torch", "cuda")
    fields: Any = fit(state, dict.fromkeys(names), "rng_state", dict.fromkeys(names, FREE))
    try:
        _check_positions(fields)
        random.Random().setstate(_python_state(fields))
        np.random.RandomState().set_state(_numpy_state(fields))
        torch.Generator().set_state(fields["torch"].cpu())
        sizes = {tensor.numel() for tensor in fields["cuda"]}
    except (TypeError, ValueError, RuntimeError, AttributeError, OverflowError, LookupError) as error:
        raise StateError(f"rng_state is none that a generator takes ({error}); {REMEDY}") from error
    if len(sizes) > 1:
        raise StateError(f"rng_state['cuda'] holds states of different sizes; {REMEDY}")


def _python_state(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    version, internal, gauss = fields["python"]
    return version, tuple(internal), gauss


def _numpy_state(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    keys, position, has_gauss, cached = fields["numpy"]
    return "MT19937", keys.numpy().astype(np.uint32), position, has_gauss, cached


def _check_positions(fields: Mapping[str, Any]) -> None:
    """Check what the generators take unchecked: NumPy would read beyond its keys."""
    gauss, (keys, position, has_gauss, cached) = fields["python"][2], fields["numpy"]
    in_keys = keys.shape == (624,) and type(position) is int and 0 <= position <= len(keys)
    if not in_keys or type(has_gauss) is not int or type(cached) is not float or type(gauss) not in (float, type(None)):
        raise ValueError("a position, a flag or a kept number is none")


_BIT_GENERATORS: Mapping[str, type[np.random.BitGenerator]] = {
    kind.__name__: kind
    for kind in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}


def generator_state(generator: np.random.Generator) -> StateDict:
    """The state of a NumPy generator as ints, strs and lists of ints (128-bit integers stay Python ints).

    :raises StateError: the bit generator is not one of NumPy's own
    """
    state = generator.bit_generator.state
    if state["bit_generator"] not in _BIT_GENERATORS:
        raise StateError(
            f"the generator {state['bit_generator']} cannot be stored; use one of {', '.join(_BIT_GENERATORS)}"
        )
    return {key: _plain(value) for key, value in state.items()}


def generator_from_state(value: StateValue, where: str) -> np.random.Generator:
    """A new generator that continues where :func:`generator_state` was taken.

    :raises StateError: unknown bit generator, or a state that is not one of it
    """
    name = value.get("bit_generator") if isinstance(value, dict) else None
    if not isinstance(name, str) or name not in _BIT_GENERATORS:
        raise misfit(f"{where}.bit_generator", f"one of {', '.join(_BIT_GENERATORS)}", name)
    bit_generator = _BIT_GENERATORS[name](0)
    rules = dict.fromkeys(("state", "inc", "key", "counter", "buffer"), Rule(0, 2**128 - 1))
    fitted = fit(value, _plain(bit_generator.state), where, rules)
    if name == "MT19937" and fitted["state"]["pos"] > len(fitted["state"]["key"]):  # NumPy would read beyond the key
        raise misfit(f"{where}.state.pos", "a position in the key", fitted["state"]["pos"])
    try:
        bit_generator.state = _like(bit_generator.state, fitted)
    except (ValueError, OverflowError, TypeError) as error:
        raise StateError(f"{where}: {name} does not take this state ({error}); {REMEDY}") from error
    return np.random.Generator(bit_generator)


def _plain(value: object) -> StateValue:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return [int(entry) for entry in value]
    return value if isinstance(value, str) else int(value)  # type: ignore[call-overload]


def _like(template: object, value: Any) -> Any:
    """Return a fitted state with the arrays that NumPy wants."""
    if isinstance(template, dict):
        return {key: _like(entry, value[key]) for key, entry in template.items()}
    return np.array(value, template.dtype) if isinstance(template, np.ndarray) else value
