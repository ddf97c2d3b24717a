#include "standin/nccl_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static nccl_segment *map(int fd)
{
    void *m =
        fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(nccl_segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    return m == MAP_FAILED ? NULL : m;
}

nccl_segment *nccl_segment_create(const char *name)
{
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0 && ftruncate(fd, sizeof(nccl_segment))) {
        close(fd);
        fd = -1;
    }
    return map(fd);
}

nccl_segment *nccl_segment_open(const char *name) { return map(shm_open(name, O_RDWR | O_CLOEXEC, 0600)); }
void nccl_segment_close(nccl_segment *s) { munmap(s, sizeof *s); }
void nccl_segment_remove(const char *name) { shm_unlink(name); }

/* A process that has ended and was not waited for yet is not alive. */
bool nccl_alive(int32_t pid)
{
    char path[64], text[512];
    if (kill(pid, 0) && errno == ESRCH) return false;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    const char *state = strrchr(text, ')');
    return !state || strlen(state) < 3 || (state[2] != 'Z' && state[2] != 'X');
}
