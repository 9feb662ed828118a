from stable_baselines3 import PPO

source, receiver = (PPO("MlpPolicy", "CartPole-v1", n_steps=64, seed=seed).learn(64) for seed in (0, 1))
receiver.set_parameters(source.get_parameters())
moments = [state["exp_avg"].clone() for state in receiver.policy.optimizer.state.values()]
source.learn(64)
print("unchanged:", [m.equal(s["exp_avg"]) for m, s in zip(moments, receiver.policy.optimizer.state.values())])
