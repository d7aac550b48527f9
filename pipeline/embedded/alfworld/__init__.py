"""The embedded model for ALFWorld's generated games: demonstrations by a scripted housekeeper, tokenizer, gates and build."""
