"""The domains: one card each, by layer, with the generators they name."""
