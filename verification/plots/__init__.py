"""What measures the plots of this project."""
