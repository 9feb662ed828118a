"""The field report: every check on the installed Stable-Baselines3, sb3-contrib and ``torch.optim``."""
