"""Networks of deep clustering: images, networks, weights as arrays, training. The modules need the extra `deep`."""

__all__ = ["embeddings", "images", "networks", "threads", "training"]
