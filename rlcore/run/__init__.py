"""Training what a file describes, and acting with what was trained."""

from rlcore.run.config_file import TrainingConfig, build_model, load_config
from rlcore.run.inference import InferencePolicy, infer_signals, load_policy

__all__ = ["InferencePolicy", "TrainingConfig", "build_model", "infer_signals", "load_config", "load_policy"]
