import psutil
import pytest

from flareclust._foundation import machine
from flareclust._foundation.machine import _group_memory, _group_quotas, free_memory, machine_memory, usable_cores

#: What a process reads of its control groups: the line in /proc/self/cgroup, the files with limits, and the least of these.
GROUPS = {
    "a container": ("0::/", {"memory.max": "1100000000"}, 1_100_000_000),
    "a service in a slice": ("0::/a.slice/b.service", {"a.slice/memory.max": "5000", "a.slice/b.service/memory.max": "max"}, 5000),
    "a container, seen from outside": ("0::/docker/12ab", {"memory.max": "7000"}, 7000),
    "version 1": ("3:cpu:/x\n4:memory:/docker/12ab", {"memory/memory.limit_in_bytes": "6000", "cpu/memory.max": "1"}, 6000),
    "a group in version 1": (
        "3:cpu:/x\n4:hugetlb,memory:/docker/12ab",
        {"memory/docker/12ab/memory.limit_in_bytes": "5000", "memory/memory.limit_in_bytes": "6000", "memory/x/memory.limit_in_bytes": "1"},
        5000,
    ),
    "no limit": ("0::/a", {"a/memory.max": "max"}, None),
}  # fmt: skip


def write_groups(folder, line, files):
    (folder / "cgroup").write_text(f"1:name=systemd:/\n{line}\n")
    for name, text in files.items():
        file = folder / "fs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")


@pytest.mark.parametrize("case", GROUPS)
def test_memory_is_that_of_the_container(tmp_path, monkeypatch, case):
    line, files, limit = GROUPS[case]
    folders = {name.rpartition("/")[0] for name in files}
    old, new = "cache 9\nrss 9\ntotal_rss 700\ntotal_shmem 50", "anon 700\nfile 9\nshmem 50\nanon_thp 9"
    held = {f"{folder}/memory.stat".lstrip("/"): old if line[0] != "0" else new for folder in folders}
    write_groups(tmp_path, line, {**files, **held})
    found = list(_group_memory(tmp_path / "cgroup", tmp_path / "fs"))
    assert min((limit for limit, _ in found), default=None) == limit
    assert {taken for _, taken in found} <= {750}
    monkeypatch.setattr(machine, "_group_memory", lambda: iter(found))
    if limit is not None:
        assert (machine_memory(), free_memory()) == (limit, limit - 750)


def test_a_limit_holds_where_what_is_held_is_not_known(tmp_path):
    write_groups(tmp_path, "4:memory:/", {"memory/memory.limit_in_bytes": "6000"})
    assert set(_group_memory(tmp_path / "cgroup", tmp_path / "fs")) == {(6000, 0)}


#: As above, with the time of processors, and the cores that it is worth.
QUOTAS = {
    "a container": ("0::/", {"cpu.max": "250000 100000"}, 2.5),
    "a service in a slice": ("0::/a.slice/b.service", {"a.slice/cpu.max": "400000 100000", "a.slice/b.service/cpu.max": "max 100000"}, 4),
    "version 1": ("4:cpu,cpuacct:/x", {"cpu/x/cpu.cfs_quota_us": "50000", "cpu/x/cpu.cfs_period_us": "100000"}, 0.5),
    "no quota in version 1": ("4:cpu:/x", {"cpu/x/cpu.cfs_quota_us": "-1", "cpu/x/cpu.cfs_period_us": "100000"}, None),
    "no quota": ("0::/a", {"a/cpu.max": "max 100000", "a/memory.max": "1"}, None),
}  # fmt: skip


@pytest.mark.parametrize("case", QUOTAS)
def test_cores_are_those_of_the_container(tmp_path, case):
    line, files, quota = QUOTAS[case]
    write_groups(tmp_path, line, files)
    assert min(_group_quotas(tmp_path / "cgroup", tmp_path / "fs"), default=None) == quota


def test_a_quota_below_one_core_leaves_one(monkeypatch):
    monkeypatch.setattr(machine, "_group_quotas", lambda: iter([0.5]))
    assert usable_cores() == 1


def test_a_system_without_control_groups_has_no_limits(tmp_path):
    assert list(_group_memory(tmp_path / "none", tmp_path)) == []
    assert list(_group_quotas(tmp_path / "none", tmp_path)) == []
    assert usable_cores() >= 1
    assert 0 < free_memory() < machine_memory() <= psutil.virtual_memory().total
