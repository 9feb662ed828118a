"""UPGD optimizers, and scaling of gradients by their variance."""
