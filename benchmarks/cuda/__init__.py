"""What training costs on a CUDA device: ratios between things that run side by side, and the tests marked `cuda`."""
