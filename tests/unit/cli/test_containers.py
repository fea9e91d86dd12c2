"""The files for containers: those that we write, and those that docs/containers.md shows.

No container engine is needed. The schema here is the part of the compose schema that our file uses, written anew and stricter: a key or
a type that is not in it fails.
"""

import re
from importlib.resources import files

import jsonschema
import pytest
import yaml
from nvflare.tool.deploy import docker_deploy, k8s_deploy

from tests.paths import ROOT

#: An amount of memory as compose and Kubernetes write it, and of CPU.
COMPOSE_MEMORY, MEMORY, CPU = r"^\d+[KMG]$", r"^\d+[KMG]i$", r"^(\d+m|\d+(\.\d+)?)$"

_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"type": "array", "items": _TEXT, "uniqueItems": True, "minItems": 1}


def _only(required=(), **properties):
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _map(values):
    return {"type": "object", "additionalProperties": values}


_DURATION = {"type": "string", "pattern": r"^(\d+(h|m|s))+$"}
_AMOUNTS = _only(
    ("cpus", "memory"),
    cpus={"type": "string", "pattern": CPU},
    memory={"type": "string", "pattern": COMPOSE_MEMORY},
)
_SERVICE = _only(
    ("image", "restart", "deploy"),
    image=_TEXT,
    restart={"enum": ["unless-stopped"]},
    command=_TEXT,
    working_dir=_TEXT,
    environment=_map(_TEXT),
    configs={"type": "array", "items": _only(("source", "target"), source=_TEXT, target=_TEXT)},
    volumes=_TEXTS,
    ports={**_TEXTS, "items": {"type": "string", "pattern": r"^127\.0\.0\.1:\d+:\d+$"}},
    depends_on=_map(_only(("condition",), condition={"enum": ["service_healthy", "service_started"]})),
    healthcheck=_only(
        ("test", "interval", "retries"), test=_TEXT, interval=_DURATION, retries={"type": "integer", "minimum": 1}
    ),
    stop_grace_period=_DURATION,
    deploy=_only(("resources",), resources=_only(("reservations",), reservations=_AMOUNTS)),
)
COMPOSE = _only(
    ("name", "services", "volumes"),
    name={"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]*$"},
    services={**_map(_SERVICE), "minProperties": 1, "propertyNames": {"pattern": "^[a-zA-Z0-9._-]+$"}},
    configs=_map(_only(("content",), content=_TEXT)),
    volumes=_map({"type": "null"}),
) | {"patternProperties": {"^x-": {}}}


def compose():
    return yaml.safe_load((files("flareclust.cli") / "templates" / "compose.yaml").read_text(encoding="utf-8"))


def test_the_services_of_a_team_fit_the_schema_and_reserve_memory_and_cpu():
    jsonschema.validate(compose(), COMPOSE)


@pytest.mark.parametrize(
    "change",
    [
        lambda service: service.update(port=["127.0.0.1:1:1"]),
        lambda service: service.update(ports=["127.0.0.1:1:1"] * 2),
        lambda service: service.update(restart=False),
        lambda service: service.pop("deploy"),
        lambda service: service["deploy"]["resources"]["reservations"].update(memory=350),
        lambda service: service["healthcheck"].update(interval=5),
        lambda service: service["environment"].update(FLAG=True),
    ],
)
def test_the_schema_refuses_other_keys_and_types_and_a_service_without_reservations(change):
    found = compose()
    change(found["services"]["mlflow"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found, COMPOSE)


def test_names_of_volumes_and_configs_are_declared():
    found = compose()
    for service in found["services"].values():
        named = {volume.partition(":")[0] for volume in service.get("volumes", ())}
        assert {name for name in named if not name.startswith((".", "/"))} <= set(found["volumes"])
        assert {config["source"] for config in service.get("configs", ())} <= set(found["configs"])


def documented(first: str) -> dict[str, object]:
    """Return the YAML block of docs/containers.md that begins with this comment."""
    page = (ROOT / "docs" / "containers.md").read_text(encoding="utf-8")
    (block,) = re.findall(rf"```yaml\n# {re.escape(first)}\n(.*?)```", page, re.DOTALL)
    return yaml.safe_load(block)


def test_nvflare_takes_the_settings_on_the_page_and_the_pod_requests_memory_and_cpu():
    docker, k8s = documented("docker.yaml"), documented("k8s.yaml")
    docker_deploy.validate_config(docker)
    k8s_deploy.validate_config(k8s)
    amounts = _only(
        ("cpu", "memory"), cpu={"type": "string", "pattern": CPU}, memory={"type": "string", "pattern": MEMORY}
    )
    jsonschema.validate(k8s["parent"]["resources"], _only(("requests",), requests=amounts, limits=amounts))
