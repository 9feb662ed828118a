from stable_baselines3 import A2C

settings = {"net_arch": [8]}
A2C("MlpPolicy", "CartPole-v1", policy_kwargs=settings)
print(settings)
