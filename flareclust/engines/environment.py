"""Which environment variables of a site or server the processes of its jobs get: those of a list, and what its kit adds.

NVFlare gives them all. Who starts a site may have set passwords for something else, and a job's process has no need of them.
"""

import re
from collections.abc import Mapping, Sequence

from flareclust._foundation.display import shown
from flareclust._foundation.errors import UserError

#: What the system, Python, its libraries and this package read. None holds a secret by its meaning.
NAMES = frozenset(
    [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "TMP",
        "TEMP",
        "XDG_CACHE_HOME",
        "XDG_STATE_HOME",
        "XDG_CONFIG_HOME",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "DYLD_LIBRARY_PATH",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONUSERBASE",
        "PYTHONNOUSERSITE",
        "PYTHONSAFEPATH",
        "PYTHONPYCACHEPREFIX",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONHASHSEED",
        "PYTHONUNBUFFERED",
        "PYTHONFAULTHANDLER",
        "PYTHONMALLOC",
        "PYTHONWARNINGS",
        "PYTHONUTF8",
        "PYTHONIOENCODING",
        "VECLIB_MAXIMUM_THREADS",
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
        "CUBLAS_WORKSPACE_CONFIG",
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_ALLOC_CONF",
        "TORCH_HOME",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "DASK_CONFIG",
        "DASK_TEMPORARY_DIRECTORY",
        "FL_LOG_LEVEL",
        "FLARECLUST_DATA",
        "FLARECLUST_MEMORY",
        "FLARECLUST_POC",
    ]
)

#: How the names of others begin.
PREFIXES = (
    *("LC_", "OMP_", "KMP_", "GOMP_", "OPENBLAS_", "MKL_", "BLIS_", "NUMEXPR_", "NUMBA_", "MALLOC_"),
    *("CUDA_", "GRPC_", "NVFLARE_", "DASK_DISTRIBUTED__"),
)

#: How a process reaches other machines, in both spellings; one with a user, and so a password, stays out.
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy", "no_proxy")

#: Names that begin like one of the list, but are of a secret, or of a proxy with one.
_SECRET = re.compile(r"PASS|SECRET|TOKEN|KEY|CRED|AUTH|PROXY", re.IGNORECASE)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def added(names: object) -> tuple[str, ...]:
    """Return the further names that a kit states.

    Raises:
        UserError: it states something else.
    """
    if not isinstance(names, list | tuple) or not all(isinstance(one, str) and _NAME.fullmatch(one) for one in names):
        raise UserError(
            f'environment of the process_launcher: expected a list of names of variables, such as ["KRB5CCNAME"], got {shown(names)}'
        )
    return tuple(names)


def listed(environment: Mapping[str, str], more: Sequence[str] = ()) -> dict[str, str]:
    """Return the variables that the process of a job gets.

    Args:
        environment: of the process that starts it.
        more: names beside those of the list.
    """
    return {name: value for name, value in environment.items() if name in more or _passes(name, value)}


def _passes(name: str, value: str) -> bool:
    if name.lower() in PROXIES:
        return "@" not in value
    return name in NAMES or (name.startswith(PREFIXES) and not _SECRET.search(name))
