"""Words of NVFlare that the tests of the engine share."""

COMPLETED = "FINISHED:COMPLETED"
