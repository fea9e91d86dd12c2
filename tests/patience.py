"""How long a test waits for what must happen, in seconds: it guards against hanging, and no test relies on its length.

A busy machine can be twenty times slower than a quiet one, so there is one generous limit and not one per test.
"""

PATIENCE = 600.0
