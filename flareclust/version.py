"""The version, in a module without imports so that every part can name it."""

__version__ = "0.1.0"
