/* A disk that takes its time: while the file named by SLOW_DISK_ON exists, fsync takes a second
 * longer below each directory whose name begins with "slow". Each delay adds a byte to the file
 * named by SLOW_DISK_DELAYS, so that a test can demand delays. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void note_delay(void) {
    const char *delays = getenv("SLOW_DISK_DELAYS");
    int file = delays ? open(delays, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (file < 0 || write(file, ".", 1) != 1 || close(file) != 0) {
        abort();
    }
}

int fsync(int file) {
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    const char *on = getenv("SLOW_DISK_ON");
    char link[64], path[PATH_MAX + 1];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_MAX);
    path[length < 0 ? 0 : length] = 0;
    if (on && access(on, F_OK) == 0 && strstr(path, "/slow")) {
        note_delay();
        sleep(1);
    }
    return next(file);
}
