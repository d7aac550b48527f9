"""Sweeps: many trials of one base configuration on Ray Tune, from the list of trials to the table at the end.

``spaces`` finds a search space and draws its points; ``trials`` makes every point a configuration; ``manifest`` is what a sweep is and
what a restore compares; ``driver`` runs it on Tune with the ``trainable``; ``writer`` is the one hand that writes to MLflow; ``screen``
and ``summary`` are what a person looks at. Light to import: Ray is imported by what needs it.
"""
