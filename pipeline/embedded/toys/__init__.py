"""The embedded model for the toy worlds (``bandit`` and ``guess``): tokenizer, random demonstrations, gates and build."""
