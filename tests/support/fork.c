/* Lets a program without unsafe code fork: a call that makes the directory "/elderlock/fork" forks instead.
 * The parent is told that it was made; in the child the call fails with ECHILD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int mkdir(const char *path, mode_t mode) {
    if (strcmp(path, "/elderlock/fork") != 0) {
        int (*next)(const char *, mode_t) = (int (*)(const char *, mode_t))dlsym(RTLD_NEXT, "mkdir");
        return next(path, mode);
    }
    pid_t child = fork();
    if (child == 0) {
        errno = ECHILD;
        return -1;
    }
    return child < 0 ? -1 : 0;
}
