"""A host whose disk is slow: a small library, preloaded, that holds up each write to a file of its kit, and each wait for the disk.

The milliseconds are read anew from a file each time, so that the disk of running processes can become slow. Pipes and sockets are as
fast as before, and so are files elsewhere.
"""

from pathlib import Path

import preloads

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static void hold_up(int file) {
    static volatile long *mapped;
    const char *delay = getenv("DISK_DELAY"), *kit = getenv("DISK_KIT");
    char name[64], path[4096];
    if (!delay || !kit) return;
    if (!mapped) {
        int held = open(delay, O_RDONLY);
        void *place = held < 0 ? MAP_FAILED : mmap(0, sizeof(long), PROT_READ, MAP_SHARED, held, 0);
        if (held >= 0) close(held);
        if (place == MAP_FAILED) return;
        mapped = place;
    }
    long left = *mapped;
    if (left <= 0) return;
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length <= 0) return;
    path[length] = 0;
    if (strncmp(path, kit, strlen(kit))) return;
    int before = errno;
    struct timespec wait = {left / 1000, left % 1000 * 1000000};
    nanosleep(&wait, 0);
    errno = before;
}

#define HELD(kind, name, parameters, arguments)                              \
    kind name parameters {                                                   \
        static kind (*real) parameters;                                      \
        if (!real) real = (kind (*) parameters)dlsym(RTLD_NEXT, #name);      \
        hold_up(file);                                                       \
        return real arguments;                                               \
    }

HELD(ssize_t, write, (int file, const void *bytes, size_t size), (file, bytes, size))
HELD(ssize_t, pwrite64, (int file, const void *bytes, size_t size, off64_t at), (file, bytes, size, at))
HELD(int, fsync, (int file), (file))
HELD(int, fdatasync, (int file), (file))
"""


def slow(folder: Path, kit: Path, delay: Path) -> dict[str, str] | None:
    """Return the environment of a host whose disk is as slow as a file says, which `hold_up` writes; None where there is no compiler."""
    library = preloads.compiled(folder, "disk", SOURCE)
    return None if library is None else {"LD_PRELOAD": str(library), "DISK_KIT": str(kit), "DISK_DELAY": str(delay)}


def hold_up(delay: Path, milliseconds: int) -> None:
    """Set how long each write takes on the disk of a file's host."""
    preloads.set_number(delay, milliseconds)
