"""Distributional PPO: the algorithm, its settings, its policies and how they represent values."""
