"""Ray's PBT on a Ray of this machine; ``python -m tests.support.ray_run RAY_FOLDER RESULTS STEPS`` is one run.

What a trial scores is its learning rate, the smaller the better, so that the worst one copies for certain.
"""

from __future__ import annotations

import sys

import ray
from ray import tune
from ray.tune.schedulers import PopulationBasedTraining

from rlcore import DistributionalPPO
from rlcore.tune import DistributionalPPOTrainable, trainable
from tests.support import ray_trials

RATES = [1e-4, 2e-4, 4e-4, 8e-4]
INTERVAL = 2


def rate(model: DistributionalPPO) -> float:
    return -float(model.lr_schedule(1.0))


def kind(steps: int) -> type[DistributionalPPOTrainable]:
    return trainable(ray_trials.build, total_timesteps=steps * 32, performance=rate, optimizer_exploit_strategy="copy")


def run(ray_folder: str, results: str, steps: int) -> None:
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=INTERVAL,
        hyperparam_mutations={"learning_rate": tune.loguniform(1e-5, 1e-1), "clip_range": tune.uniform(0.05, 0.5)},
        quantile_fraction=0.25,
        resample_probability=0.0,
        synch=True,
    )
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 * 2**20, _temp_dir=ray_folder)
    try:
        tune.Tuner(
            kind(steps),
            param_space={"learning_rate": tune.grid_search(RATES), "clip_range": 0.2, "optimizer_class": "adam"},
            tune_config=tune.TuneConfig(metric="score", mode="max", scheduler=scheduler, reuse_actors=True),
            run_config=tune.RunConfig(
                name="run",
                storage_path=results,
                verbose=0,
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True),
            ),
        ).fit()
    finally:
        ray.shutdown()


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], int(sys.argv[3]))
