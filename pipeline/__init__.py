"""The federation: configuration, schedule, algorithms, aggregation, the round loop and what a person looks at.

Importing this package imports no torch, Ray or vLLM.
"""
