"""The engine: real decoding on a cache of expert slots, inside stock llama.cpp."""
