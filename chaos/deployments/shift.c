/* A wall clock that is ahead of the machine's: preloaded into a server, it adds to every reading the seconds that
 * stand, as a 64-bit number, in the file named by CHAOS_CLOCK_AHEAD. The monotonic clock is left alone. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *ahead_s;

static void __attribute__((constructor)) look(void) {
    const char *path = getenv("CHAOS_CLOCK_AHEAD");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0)
        return;
    void *page = mmap(NULL, sizeof *ahead_s, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED)
        ahead_s = page;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *moment) {
    int failed = (int)syscall(SYS_clock_gettime, clock, moment);
    if (!failed && ahead_s && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        moment->tv_sec += *ahead_s;
    return failed;
}

int gettimeofday(struct timeval *restrict moment, void *restrict zone) {
    int failed = (int)syscall(SYS_gettimeofday, moment, zone);
    if (!failed && ahead_s)
        moment->tv_sec += *ahead_s;
    return failed;
}

time_t time(time_t *also) {
    struct timespec moment;
    clock_gettime(CLOCK_REALTIME, &moment);
    if (also)
        *also = moment.tv_sec;
    return moment.tv_sec;
}
