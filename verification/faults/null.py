"""Null faults, one for each area: they replace a member by itself. A check that detects one gives a false alarm."""

from __future__ import annotations

from dataclasses import replace

from rlverify import add_fault, get_fault, null_fault_of
from verification.faults import (
    checkpoint_reading,
    environments,
    learning_rate,
    losses,
    model_file,
    monitoring,
    optimizers,
    pbt,
    pbt_exploit,
    returns,
    rollout,
    scaler,
    schedules,
    settings,
    training_state,
    values,
)

OF_AREAS = {
    losses: "bug-01-padding-kept-in-predictions",
    learning_rate: "bug-02-fix-lost-in-first-train",
    optimizers: "bug-05-zero-over-zero",
    scaler: "bug-10-relink-wipes-statistics",
    pbt: "fnd-04-all-explore",
    pbt_exploit: "fnd-15-keys-that-do-not-exist",
    training_state: "bug-10-scaler-state-not-saved",
    values: "fnd-19-averaged-before-max",
    returns: "fnd-24-heads-left-uncorrected",
    schedules: "fnd-23-default-floor",
    settings: "bug-07-unknown-settings-ignored",
    rollout: "fnd-20-values-after-the-step",
    environments: "bug-03-foreign-environment-let-in",
    model_file: "bug-08-closures-saved",
    monitoring: "mon-06-last-factor-for-all",
    checkpoint_reading: "asr-04-v1-not-recognised",
}
"""The module of each area's faults, and the fault whose member is replaced by itself."""

for _module, _fault in OF_AREAS.items():
    _area = get_fault(_fault).area
    add_fault(replace(null_fault_of(get_fault(_fault)), name=f"null-{_area.replace('_', '-')}", defined_in=__name__))
