"""Router traces: what a model's routers answered on a corpus, ranked and layer-major."""
