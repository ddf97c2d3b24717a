"""As much of PyTorch as a script needs to be imported."""
