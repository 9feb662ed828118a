"""``python -m rlcore.train``, see :mod:`rlcore.run.train`."""

from rlcore.run.train import app
from rlcore.starting import let_interrupts_raise

if __name__ == "__main__":
    let_interrupts_raise()
    app()
