from stable_baselines3 import PPO

model = PPO("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": {"polcy": [256, 256], "value": [256, 256]}})
print(model.policy.mlp_extractor)
