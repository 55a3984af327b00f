"""The evaluator: held-out scores of checkpoints, through the same queue, sampler and verifier as training."""
