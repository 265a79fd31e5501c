/* A system without randomness: while the file named by NO_RANDOMNESS_ON exists, getrandom fails. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

ssize_t getrandom(void *bytes, size_t length, unsigned int flags) {
    ssize_t (*next)(void *, size_t, unsigned int) =
        (ssize_t (*)(void *, size_t, unsigned int))dlsym(RTLD_NEXT, "getrandom");
    const char *on = getenv("NO_RANDOMNESS_ON");
    if (length > 0 && on && access(on, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return next(bytes, length, flags);
}
