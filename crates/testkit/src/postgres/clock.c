/* A clock that can be set off against the machine's: preloaded into PostgreSQL's servers.
 *
 * Owns the wall clock of a process as its C library tells it. Does not touch clocks that only count (CLOCK_MONOTONIC and
 * the like), nor what sleeps, waits or rings: PostgreSQL's timers go on. The offset is eight bytes of a file, nanoseconds as a
 * signed number in the machine's order, which whoever moves the clock overwrites while the servers run: each reading of the clock
 * looks at them. A process that is told of no such file, or cannot use it, ends at once: a clock that silently does not move would prove
 * nothing. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define OFFSET_FILE "PLACET_TEST_CLOCK"
#define SECOND_NS INT64_C(1000000000)

_Static_assert(sizeof(time_t) == 8 && sizeof(long) == 8, "the system call's times are those of the C library");

static const int64_t *offset;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv(OFFSET_FILE);
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) {
        fprintf(stderr, "the file in " OFFSET_FILE " cannot be used\n");
        _exit(127);
    }
    close(file);
    offset = mapped;
}

static int moves(clockid_t id) {
    return id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int said = (int)syscall(SYS_clock_gettime, id, now);
    /* Other libraries may ask before this one has begun. */
    if (said != 0 || offset == NULL || !moves(id)) {
        return said;
    }
    int64_t by = __atomic_load_n(offset, __ATOMIC_RELAXED);
    int64_t rest = now->tv_nsec + by % SECOND_NS;
    now->tv_sec += by / SECOND_NS;
    if (rest < 0) {
        now->tv_sec -= 1;
        rest += SECOND_NS;
    } else if (rest >= SECOND_NS) {
        now->tv_sec += 1;
        rest -= SECOND_NS;
    }
    now->tv_nsec = rest;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec fine;
    if (zone != NULL) {
        *(struct timezone *)zone = (struct timezone){0};
    }
    if (clock_gettime(CLOCK_REALTIME, &fine) != 0) {
        return -1;
    }
    now->tv_sec = fine.tv_sec;
    now->tv_usec = fine.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *also) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME_COARSE, &now) != 0) {
        return (time_t)-1;
    }
    if (also != NULL) {
        *also = now.tv_sec;
    }
    return now.tv_sec;
}
