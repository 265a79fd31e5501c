/* A disk that takes its time: while the file named by SLOW_DISK_ON exists, fsync takes a second longer for
 * whatever lies below a directory called "slow". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int fsync(int file) {
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    const char *on = getenv("SLOW_DISK_ON");
    char link[64], path[PATH_MAX + 1];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_MAX);
    path[length < 0 ? 0 : length] = 0;
    if (on && access(on, F_OK) == 0 && strstr(path, "/slow")) {
        sleep(1);
    }
    return next(file);
}
