"""Kits from project files, for the tests of provisioning."""

import json
import os
import subprocess
import sys

import yaml
from nvflare.apis.fl_constant import AdminCommandNames
from nvflare.fuel.sec.authz import AuthzContext, Person
from nvflare.security.security import COMMAND_CATEGORIES, FLAuthorizer

from tests.paths import ROOT
from tests.patience import PATIENCE

PROJECT = ROOT / "poc_workspace" / "project.yml"

OURS = "flareclust.provision.SiteDefaults"

SITES = ("clinic-a", "clinic-b", "clinic-c")


def provisioned(project, folder):
    """Provision as an operator does, in an empty folder with an empty home, and return the kits and the text printed.

    In the same folder again it makes the kits once more, which are those that are returned.
    """
    home, number = folder / "home", len([*folder.glob("kits/clinics/prod_*")])
    home.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "nvflare.cli", "provision", "-p", str(project), "-w", "kits", "--force"]
    done = subprocess.run(
        command,
        check=False,
        cwd=folder,
        env=os.environ | {"HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return folder / "kits" / "clinics" / f"prod_{number:02}", done.stdout + done.stderr


def changed(folder, change):
    """Write a copy of the project file after a change, and return it."""
    project = yaml.safe_load(PROJECT.read_text())
    change(project)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "project.yml"
    file.write_text(yaml.safe_dump(project))
    return file


def provisioned_with(folder, **args):
    """Provision with these arguments of our Builder, and return the kits."""

    def change(project):
        next(builder for builder in project["builders"] if builder["path"] == OURS).update(args=args)

    return provisioned(changed(folder, change), folder / "made")[0]


def resources(kit, name="resources.json.default"):
    return json.loads((kit / "local" / name).read_text())


def rights(kit):
    return resources(kit, "authorization.json.default")


def allowed(policy):
    """Return whom NVFlare's own evaluator lets do what: (role, right, whose job), at a site of the organisation a."""
    authorizer = FLAuthorizer("a", policy)
    names = {name for key, name in vars(AdminCommandNames).items() if key.isupper()} | set(COMMAND_CATEGORIES)
    names |= {"byoc", "server-predeployed-flwr"}
    people = [Person(f"{role}@{org}", org, role) for role in policy["permissions"] for org in ("a", "b")]
    submitters = [Person(f"lead@{org}", org, "lead") for org in ("a", "b")]
    return {
        (user.name, right, submitter.name)
        for user in people
        for submitter in submitters
        for right in names
        if authorizer.authorize(AuthzContext(right, user, submitter))[0]
    }


def component(found, identity):
    return next(one for one in found["components"] if one["id"] == identity)
