"""Known bugs of the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, model_validator, root_validator

from rlverify import fault, healthy


@fault("bug-07-unknown-settings-ignored", target="rlcore.ppo.settings:reject_unknown", pins="5b7c558383468244")
def unknown_settings_ignored(given: dict[str, Any], where: str, homes: Mapping[str, Sequence[str]]) -> None:
    """Drop unknown settings without an error."""
    for name in set(given) - set(homes[where]):
        del given[name]


@fault("fnd-21-any-text-is-true", target="rlcore.ppo.settings:flag_value", pins="f8b2cd80a8d2a683")
def any_text_is_true(value: object) -> object:
    """Convert flags with bool(), which makes "false" and "0" True."""
    return bool(value)


@fault("int-02-rules-as-root-validator", target="rlcore.run.config_file:_checked", pins="8a338fa2498ac853")
def rules_as_root_validator(table: type[BaseModel], given: object, where: str) -> BaseModel:
    """Check a section with a root validator of pydantic 1."""

    class Section(table):  # type: ignore[misc,valid-type]
        @root_validator(pre=True)
        @classmethod
        def unchanged(cls, values: Any) -> Any:
            return values

    checked: BaseModel = healthy("int-02-rules-as-root-validator")(Section, given, where)
    return checked


@fault("int-02-fix-rules-as-model-validator", target="rlcore.run.config_file:_checked", pins="8a338fa2498ac853")
def rules_as_model_validator(table: type[BaseModel], given: object, where: str) -> BaseModel:
    """Apply document 000's fix: a model validator of pydantic 2."""

    class Section(table):  # type: ignore[misc,valid-type]
        @model_validator(mode="before")
        @classmethod
        def unchanged(cls, values: Any) -> Any:
            return values

    checked: BaseModel = healthy("int-02-fix-rules-as-model-validator")(Section, given, where)
    return checked


@fault("cfg-01-yaml-1-1", target="rlcore.run.config_file:read_yaml", pins="984ba18be59a4b31")
def yaml_1_1(path: str | Path) -> Any:
    """Read the file with PyYAML, that is YAML 1.1, where 3e-4 is a string because it has no point."""
    return yaml.safe_load(Path(path).read_text(encoding="utf-8"))
