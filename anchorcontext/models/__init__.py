"""Models: transformers' own, built for long positions, with packed attention and a loss without logits."""
