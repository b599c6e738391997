/* Loaded before the C library: a wall clock that jumps, and a file system that knows no locks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

static int (*real_clock)(clockid_t, struct timespec *);
static int (*real_flock)(int, int);

/* CHAOS_CLOCK names a file: while it is there, the time is CHAOS_DAYS days off. Monotonic clocks go on. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real_clock) real_clock = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real_clock(clock, now);
    const char *file = getenv("CHAOS_CLOCK");
    struct stat found;
    if (!failed && file && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) && !stat(file, &found))
        now->tv_sec += atol(getenv("CHAOS_DAYS")) * 86400;
    return failed;
}

/* CHAOS_LOCKS says with which error every lock is refused, as on some network file systems. */
int flock(int file, int how) {
    const char *error = getenv("CHAOS_LOCKS");
    if (!real_flock) real_flock = dlsym(RTLD_NEXT, "flock");
    if (!error) return real_flock(file, how);
    errno = strcmp(error, "enolck") ? EINVAL : ENOLCK;
    return -1;
}
