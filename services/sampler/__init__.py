"""The sampler service: generation under leases. Invariant: what is emitted is what the engine sampled, token by token."""
