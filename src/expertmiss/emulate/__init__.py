"""The emulator: a model runs while the policy core decides which experts every token gets."""
