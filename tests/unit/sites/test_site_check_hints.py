"""`flareclust site check` names what jobs would stumble over, at sites and at the server."""

import json

import numpy as np
import pytest

from flareclust.privacy.policy import DifferentialPrivacy, Policy
from flareclust.privacy.secure_aggregation.own_identity import fingerprint, make_identity
from flareclust.sites.check import check, local_of
from flareclust.sites.class_list import of_server
from flareclust.sites.config import write_site
from flareclust.sites.policy_file import write_policy
from tests.command_line import call
from tests.unit.sites.check_cases import rows, wrong


# --- where rows and labels are ---
def plain(kit, **said):
    """Configure a site whose rows are in a folder of their own, with a policy; return the folder."""
    folder = kit.parent / "rows"
    folder.mkdir(exist_ok=True)
    np.save(folder / "a.npy", np.random.default_rng(0).normal(size=(30, 2)))
    lines = {"path": folder / "a.npy", **said}
    (kit / "local" / "flareclust.yaml").write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))
    write_policy(kit / "local", Policy())
    return folder


def hinted(kit, words):
    return [hint for hint in check(kit).hints if words in hint]


def test_a_code_for_missing_cells_is_named(kit):
    folder = plain(kit)
    assert not hinted(kit, "code for missing")
    X = np.load(folder / "a.npy")
    X[3, 1] = -999
    np.save(folder / "a.npy", X)
    assert hinted(kit, "column 'column 2' has 1 cell far from all others; errors, or a code")


def test_labels_in_the_folder_of_the_rows_are_named(kit):
    folder = plain(kit)
    assert not hinted(kit, "labels")
    plain(kit, labels=folder)
    assert hinted(kit, "labels are written into the folder of the rows")
    plain(kit, path=f"{folder}/*.npy", labels=folder)
    assert hinted(kit, "labels are written into the folder of the rows"), "no csv is matched now, but may be later"
    plain(kit, labels=folder / "labels")
    assert not hinted(kit, "labels")


def test_a_pattern_that_reads_the_labels_of_earlier_jobs_in_the_kit_is_named(kit):
    folder = plain(kit)
    (folder / "a.npy").unlink()
    (folder / "a.csv").write_text("x,y\n" + "1.5,2\n2.5,7\n" * 8)
    (kit / "local" / "flareclust.yaml").write_text(f"path: {kit.parent}/**/*.csv\n")
    assert hinted(kit, "labels.csv of each job would be read as rows")
    (kit / "local" / "flareclust.yaml").write_text(f"path: {folder}/**/*.csv\n")
    assert not hinted(kit, "labels.csv")


def test_patterns_that_walk_the_disk_are_named(kit, monkeypatch):
    plain(kit, path="/**/a.npy")
    wrong(kit, "looks through the whole disk")
    plain(kit, path="/")
    wrong(kit, "cannot use its rows: / is a folder")
    folder = plain(kit)
    plain(kit, path=f"{folder}/**/a.npy")
    assert not hinted(kit, "looks through")
    monkeypatch.setenv("HOME", str(folder))
    assert hinted(kit, "looks through a home folder")
    monkeypatch.setenv("HOME", str(kit))
    monkeypatch.setattr("flareclust.sites.rows._MANY", 3)
    for number in range(4):
        (folder / f"{number}.txt").touch()
    assert hinted(kit, "looks through more than 3 files and folders")
    plain(kit, path=f"{folder}/a.npy")
    assert not hinted(kit, "looks through")


def test_a_default_scope_that_is_not_there_is_named(kit):
    plain(kit)
    file = kit / "local" / "privacy.json"
    assert not hinted(kit, "default_scope")
    file.write_text(json.dumps({**json.loads(file.read_text()), "default_scope": "strict"}))
    assert hinted(kit, "the default_scope 'strict' and no scope of that name")


def test_arrays_that_no_algorithm_sends_are_named(kit):
    plain(kit)
    write_policy(kit / "local", Policy(arrays=("centroid",)))
    assert hinted(kit, "'centroid' (did you mean 'centroids'?)")


# --- what the kit's own files say comes first, and a server has nothing else ---
def test_trouble_with_the_rows_hides_nothing_about_classes_rights_and_code(kit, capsys):
    write_site(local_of(kit), "absent.csv")
    (kit / "local" / "resources.json.default").write_text(json.dumps({"class_allow_list": ["flareclust."]}))
    (kit / "local" / "authorization.json.default").write_text(json.dumps({"permissions": {"lead": {"byoc": "any"}}}))
    (kit / "local").chmod(0o777)
    write_policy(kit / "local", Policy())
    (kit / "local" / "privacy.json").write_text('{"scopes": 3}')
    assert call("site", "check", kit) == 2
    printed = capsys.readouterr()
    assert "north: no rows, see below" in printed.out
    assert "classes: every function of flareclust" in printed.out
    assert "code in jobs: from lead (any)" in printed.out
    assert "policy: broken" in printed.out
    assert "versions: flareclust" in printed.out
    assert "hint: jobs may bring code from lead (any)" in printed.out
    classes, rights, policy, rows = printed.err.splitlines()
    assert classes.startswith("error: north lets jobs call every function of flareclust ('flareclust.' in local/res")
    assert rights == "error: north has local, which other accounts can write; run `chmod go-w local local/*` in its kit"
    assert policy.startswith("error: north has a policy that no job can be held to: ")
    assert rows == "error: north cannot use its rows: absent.csv: no such file"


def test_resources_that_jobs_would_stumble_over_are_an_error(kit):
    plain(kit)
    (kit / "local" / "resources.json").write_text('{"class_allow_list": [],\n "class_allow_list": ["*"]}')
    wrong(kit, "north has a file that cannot be read: .*resources.json has the key 'class_allow_list' twice, .* line 2")
    found = check(kit)
    assert found.facts["classes"] == "unknown (resources.json cannot be read)"
    assert found.facts["error texts"] == "unknown"
    assert not hinted(kit, "are not listed")


def test_fewer_rows_than_the_policy_asks_for_and_columns_without_bounds_are_errors(kit):
    plain(kit)
    write_policy(kit / "local", Policy(min_count=31))
    wrong(kit, "north has 30 rows where its policy asks for 31")
    private = DifferentialPrivacy(((0, 1), (0, 1), (0, 1)), epsilon=1, delta=1e-6, budget=5)
    write_policy(kit / "local", Policy(dp=private))
    wrong(kit, "north has bounds for 3 columns and rows of 2")


@pytest.fixture
def server(tmp_path):
    """A server's kit as version 0.1 made it."""
    folder = tmp_path / "prod_00" / "hub"
    (folder / "startup").mkdir(parents=True)
    (folder / "local").mkdir(mode=0o755)
    (folder / "startup" / "fed_server.json").write_text("{}")
    resources = {"servers": [{"heart_beat_timeout": 600}], "class_allow_list": ["flareclust."], "components": []}
    (folder / "local" / "resources.json.default").write_text(json.dumps(resources))
    rights = {"permissions": {"lead": {"submit_job": "any", "byoc": "any"}}}
    (folder / "local" / "authorization.json.default").write_text(json.dumps(rights))
    return folder


def test_a_servers_kit_is_checked_without_rows_and_policy(server, capsys):
    assert call("site", "check", server) == 2
    printed = capsys.readouterr()
    assert "hub: a server, which has no rows" in printed.out
    assert "code in jobs: from lead (any)" in printed.out
    assert printed.err.startswith("error: hub lets jobs call every function of flareclust")
    assert call("site", "allow", server) == 0
    capsys.readouterr()
    assert call("site", "check", server) == 0
    printed = capsys.readouterr().out
    assert f"classes: {len(of_server())} of {len(of_server())} of flareclust, 0 others" in printed
    assert "code in jobs: from nobody" in printed
    assert "policy" not in printed
    assert "error texts" not in printed
    assert "nothing odd" in printed
    (server / "startup" / "server.key").write_text("")
    (server / "startup" / "server.key").chmod(0o644)
    assert check(server).hints == ["other accounts of this machine can read startup/server.key: chmod 600"]
    (server / "local" / "authorization.json.default").chmod(0o666)
    wrong(server, "hub has local/authorization.json.default, which other accounts can write")


def test_the_sites_that_a_server_keeps_out_are_listed(server):
    assert call("site", "allow", server) == 0
    assert check(server).facts["disabled sites"] == "none"
    (server / "disabled_clients.json").write_text('{"disabled_clients": ["b", "a"]}')
    assert check(server).facts["disabled sites"] == "a, b"
    (server / "disabled_clients.json").write_text('{"disabled_clients": "a"}')
    assert check(server).facts["disabled sites"] == "unknown"
    wrong(server, "expected a list of names as disabled_clients, as NVFlare's server writes it")


def test_a_low_floor_is_pointed_out(kit):
    write_site(local_of(kit), str(rows(kit, crp=np.arange(30.0), iron=np.arange(30.0) ** 2)))
    write_policy(kit / "local", Policy(min_count=2))
    assert any(
        "min_count is 2: means of fewer than 6 rows hide little; 10 is recommended" in h for h in check(kit).hints
    )
    write_policy(kit / "local", Policy())
    assert not any("min_count" in hint for hint in check(kit).hints)


def test_one_noise_for_sites_that_the_policy_does_not_name_is_pointed_out(kit):
    write_site(local_of(kit), str(rows(kit, crp=np.arange(30.0), iron=np.arange(30.0) ** 2)))
    dp = DifferentialPrivacy((0.0, 1000.0), 1.0, 1e-5, 1.0)
    write_policy(kit / "local", Policy(secure_sums=True, dp=dp))
    assert any("names no sites, so jobs of dp-lloyd are refused" in hint for hint in check(kit).hints)
    write_policy(kit / "local", Policy(secure_sums=True, dp=dp, secure_sites=("a", "b", "c")))
    assert not any("names no sites" in hint for hint in check(kit).hints)


def test_what_secure_sums_rest_on_is_shown(kit):
    """The kit is that of `north`."""
    plain(kit)
    local, names, pins = kit / "local", ("north", "south", "west"), {"south": (f"SHA256:{'a' * 43}",)}
    assert check(kit).facts["identity"] == "none"
    assert not hinted(kit, "identity"), "only where the policy asks for secure sums"
    write_policy(local, Policy(secure_sums=True, secure_sites=names))
    assert hinted(kit, "the site has no identity of its own: flareclust site allow")
    assert hinted(kit, "the policy pins no identity of another site")
    (key,) = make_identity(local)
    assert check(kit).facts["identity"] == fingerprint(key.public_key())
    assert not hinted(kit, "has no identity")
    write_policy(local, Policy(secure_sums=True, secure_sites=names, secure_identities=pins))
    assert hinted(kit, "the policy pins no identity of west, whose certificates count")
    write_policy(local, Policy(secure_identities=pins))
    assert hinted(kit, "pins identities and names no sites")
    write_policy(local, Policy(secure_sites=names, secure_identities=pins | {"west": (f"SHA256:{'b' * 43}",)}))
    assert not hinted(kit, "identit")


def test_an_identity_that_others_can_read_or_write_or_that_is_broken_is_named(kit):
    plain(kit)
    make_identity(kit / "local")
    file = kit / "local" / "secure_identity.pem"
    (kit / "local" / "flareclust.yaml").chmod(0o600)
    file.chmod(0o644)
    assert hinted(kit, "other accounts of this machine can read local/secure_identity.pem: chmod 600")
    file.chmod(0o602)
    wrong(kit, "north has local/secure_identity.pem, which other accounts can write")
    file.chmod(0o600)
    file.write_text("no key")
    wrong(kit, "north has an identity that signs nothing: .*secure_identity.pem holds no identity of a site")
    assert check(kit).facts["identity"] == "broken"


# --- columns beside what was agreed ---
def test_a_column_in_another_unit_than_its_bounds_is_named(kit):
    rng = np.random.default_rng(0)
    file = rows(kit, age=rng.normal(60, 10, 300).round(1), tumour=(rng.gamma(4, 9, 300).clip(2, 190) / 10).round(2))
    (kit / "local" / "flareclust.yaml").write_text(f"path: {file}\n")
    for most, found in ((200, 1), (20, 0)):
        bounds = {"age": (0, 110), "tumour": (0, most)}
        write_policy(kit / "local", Policy(dp=DifferentialPrivacy(bounds, 1.0, 1e-5, 1.0)))
        assert len(hinted(kit, "'tumour' fills only")) == found
    (kit / "local" / "schema.yaml").write_text(
        "columns: {age: number, tumour: {type: number, range: [0, 200], unit: mm}}"
    )
    (kit / "local" / "flareclust.yaml").write_text(f"path: {file}\nschema: schema.yaml\n")
    assert hinted(kit, "of the schema's range 0 to 200; is it in another unit?")
