"""Packed windows, their order, and batches of them."""
