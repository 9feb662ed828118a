from sb3_contrib import RecurrentPPO

settings = {"n_steps": 65, "batch_size": 64, "n_epochs": 1, "seed": 0}
model = RecurrentPPO("MlpLstmPolicy", "CartPole-v1", **settings).learn(65)
print("finite:", all(each.isfinite().all() for each in model.policy.parameters()))
