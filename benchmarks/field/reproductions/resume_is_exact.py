from stable_baselines3 import PPO

whole, half = (PPO("MlpPolicy", "CartPole-v1", n_steps=64, seed=0).learn(steps) for steps in (128, 64))
half.save("half.zip")
resumed = PPO.load("half.zip", env=half.get_env()).learn(64, reset_num_timesteps=False)
print("same parameters:", all(map(lambda a, b: a.equal(b), whole.policy.parameters(), resumed.policy.parameters())))
