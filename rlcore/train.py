"""``python -m rlcore.train``, see :mod:`rlcore.run.train`."""

from rlcore.run.train import app

if __name__ == "__main__":
    app()
