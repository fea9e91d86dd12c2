"""A host whose clock is wrong: a small library, preloaded, that shifts the wall clock of every process of the host.

The shift is a number of seconds, or is read anew from a file each time, so that clocks of running processes can jump. Only CLOCK_REALTIME is shifted, as on a machine with a wrong date; what waits for so and so long goes by another clock.
"""

from pathlib import Path

import preloads

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static long shift(void) {
    static volatile long *mapped;
    const char *seconds = getenv("CLOCK_SHIFT");
    if (!seconds) return 0;
    if (*seconds != '/') return atol(seconds);
    if (!mapped) {
        int file = open(seconds, O_RDONLY);
        void *place = file < 0 ? MAP_FAILED : mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
        if (place == MAP_FAILED) return 0;
        mapped = place;
    }
    return *mapped;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, now);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *out) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (out) *out = exact.tv_sec;
    return exact.tv_sec;
}
"""


def shifted(folder: Path, seconds: int | Path) -> dict[str, str] | None:
    """Return the environment of a host whose clock is wrong by so many seconds; None where there is no compiler.

    In place of the seconds a file may hold them, as `jump` writes it.
    """
    library = preloads.compiled(folder, "clock", SOURCE)
    return None if library is None else {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(seconds)}


def jump(file: Path, seconds: int) -> None:
    """Set by how much the clocks of a file's host are wrong."""
    preloads.set_number(file, seconds)
