from zipfile import ZipFile

from stable_baselines3 import PPO

PPO("MlpPolicy", "CartPole-v1").save("model.zip")
print(ZipFile("model.zip").read("data").count(b":serialized:"), "fields of the JSON file are pickles")
