"""Thin Ray shells over plain objects, one file per role. Nothing here decides what is learned."""
