"""The settings that a model carries as attributes beside Stable-Baselines3's own, by type."""

from __future__ import annotations

from typing import Any, Literal

import torch


class SettingAttributes:
    """Declares what ``DistributionalPPO`` copies from :class:`rlcore.ppo.config.PPOSettings`; holds nothing itself."""

    clip_range: Any
    clip_range_vf: Any
    ent_coef_final: float | None
    ent_coef_min: float
    ent_coef_boost: float | None
    ent_coef_plateau_explained_variance: float
    ent_coef_plateau_patience: int
    kl_penalty_target: float | None
    kl_penalty_coef: float
    kl_penalty_min_coef: float
    kl_penalty_max_coef: float
    optimizer_class: str | type[torch.optim.Optimizer]
    optimizer_kwargs: dict[str, Any]
    critic_lr_multiplier: float
    n_critics: int
    value_distribution: Literal["quantile", "categorical"]
    n_quantiles: int
    huber_kappa: float
    num_atoms: int | None
    v_min: float | None
    v_max: float | None
    return_scale: Literal["zero_lag", "snapshot"] | None
    return_scale_decay: float
    return_scale_min_std: float
    vgs_beta: float
    vgs_alpha: float
    vgs_eps: float
    vgs_warmup_steps: int
    vgs_estimator: Literal["mean", "spatial", "total", "element", "sketch"]
    vgs_normalization: Literal["squared_mean", "second_moment"]
    vgs_min_scaling_factor: float
    vgs_max_normalized_variance: float
    stats_window_size: int
