"""Every check as a test: `pytest test_ppo.py`, or one of them: `pytest test_ppo.py -k resume_is_exact`.

From the shell: `rlverify check test_ppo.py:SUBJECT`.
"""

from adapter import PPOAdapter
from ppo import PPO

from rlverify.checks import parametrize_with_checks, subject

SUBJECT = subject(PPO, name="plain-ppo", adapter=PPOAdapter())


@parametrize_with_checks([SUBJECT])
def test_training(check):
    check()
