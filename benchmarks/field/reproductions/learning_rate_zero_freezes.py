from sb3_contrib import TRPO

model = TRPO("MlpPolicy", "CartPole-v1", learning_rate=0.0, n_steps=64, seed=0)
before = [each.detach().clone() for each in model.policy.parameters()]
model.learn(64)
print("moved:", [not a.equal(b) for a, b in zip(before, model.policy.parameters())])
