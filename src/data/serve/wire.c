#include "data/serve/wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "kolo/error.h"

static bool is_name(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return *name && strspn(name, allowed) == strlen(name);
}

int serve_path(const char *name, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    const size_t most = sizeof address->sun_path;
    const int n = strchr(name, '/') ? snprintf(address->sun_path, most, "%s", name)
                                    : snprintf(address->sun_path, most, "/dev/shm/kolo-serve-%u-%s",
                                               (unsigned)geteuid(), name);
    if (!strchr(name, '/') && !is_name(name))
        return kolo_fail(KOLO_ECONFIG,
                         "data_server=%s: a name has letters, digits, dots and dashes; a path has a slash",
                         name);
    return n < 0 || (size_t)n >= most
               ? kolo_fail(KOLO_ECONFIG, "data_server=%s: too long for a socket (%zu bytes)", name, most - 1)
               : 0;
}

/* Slurm binds BASE/JOB/.JOB, or folders below it, over /tmp and others. Fourth word of a line: what is
 * bound. */
bool serve_private_shm(const char *mounts, const char *job)
{
    char line[4096], root[2048], mark[64];
    bool found = false;
    FILE *file = job && *job ? fopen(mounts, "re") : NULL;
    if (!file) return false;
    snprintf(mark, sizeof mark, "/.%s", job);
    while (!found && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%*s %*s %*s %2047s", root) != 1) continue;
        const char *at = strstr(root, mark);
        found = at && (at[strlen(mark)] == 0 || at[strlen(mark)] == '/');
    }
    fclose(file);
    return found;
}

int serve_peer(int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0)
        return kolo_fail(KOLO_EIO, "data_server=: cannot read the other end's user: %s", strerror(errno));
    if (peer.uid != geteuid())
        return kolo_fail(KOLO_EIO, "data_server=: the other end belongs to user %u", (unsigned)peer.uid);
    return peer.pid;
}

/* A socket that others may write to, or that somebody else made, is no server's. */
static int check_socket(const char *path)
{
    struct stat info;
    if (lstat(path, &info) < 0)
        return kolo_fail(KOLO_EIO, "%s: %s", path,
                         errno == ENOENT ? "no server is running under this name" : strerror(errno));
    if (!S_ISSOCK(info.st_mode)) return kolo_fail(KOLO_EIO, "%s is not a socket; remove it", path);
    if (info.st_uid != geteuid())
        return kolo_fail(KOLO_EIO, "%s belongs to user %u; choose another name", path, (unsigned)info.st_uid);
    if (info.st_mode & 077)
        return kolo_fail(
            KOLO_EIO,
            "%s has mode %03o: others may write to it; remove it, a server creates it with mode 600", path,
            (unsigned)info.st_mode & 0777);
    return 0;
}

int serve_connect(const struct sockaddr_un *address, int *fd)
{
    const struct timeval send_timeout = {.tv_sec = 10}; /* for a server that takes no calls */
    int rc;
    KOLO_TRY(check_socket(address->sun_path));
    *fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (*fd < 0) return kolo_fail(KOLO_EIO, "data_server=: cannot create a socket: %s", strerror(errno));
    setsockopt(*fd, SOL_SOCKET, SO_SNDTIMEO, &send_timeout, sizeof send_timeout);
    while ((rc = connect(*fd, (const struct sockaddr *)address, sizeof *address)) < 0 && errno == EINTR)
        continue;
    if (rc < 0)
        rc = kolo_fail(KOLO_EIO, "%s: %s", address->sun_path,
                       errno == ECONNREFUSED ? "its server is dead" : strerror(errno));
    else rc = serve_peer(*fd);
    if (rc >= 0) return 0;
    close(*fd);
    *fd = -1;
    return rc;
}

int serve_send(int fd, enum serve_kind kind, int64_t position, const int64_t *number, int n, const char *text,
               int pass)
{
    serve_head head = {.magic = SERVE_MAGIC,
                       .version = SERVE_VERSION,
                       .kind = kind,
                       .text_bytes = (uint32_t)strnlen(text, SERVE_TEXT),
                       .position = position};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof pass)] = {0};
    struct iovec part[2] = {{&head, sizeof head}, {(void *)text, head.text_bytes}};
    struct msghdr message = {.msg_iov = part, .msg_iovlen = 2};
    for (int i = 0; i < n; i++) head.number[i] = number[i];
    if (pass >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof pass);
        memcpy(CMSG_DATA(c), &pass, sizeof pass);
    }
    ssize_t sent;
    while ((sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)) < 0 && errno == EINTR) continue;
    return sent < 0 ? kolo_fail(KOLO_EIO, "data_server=: cannot send: %s", strerror(errno)) : 0;
}

static void receive_descriptor(struct msghdr *message, int *passed)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
            c->cmsg_len == CMSG_LEN(sizeof *passed))
            memcpy(passed, CMSG_DATA(c), sizeof *passed);
}

static int check_packet(serve_packet *p, size_t bytes, int flags)
{
    const size_t common = offsetof(serve_head, text_bytes);
    if (bytes < common || p->head.magic != SERVE_MAGIC || !memchr(p->head.version, 0, sizeof p->head.version))
        return kolo_fail(KOLO_EINPUT,
                         "data_server=: received %zu bytes that are not a packet of kolo serve-data", bytes);
    if (strcmp(p->head.version, SERVE_VERSION) != 0)
        return kolo_fail(KOLO_EINPUT,
                         "data_server=: the other end is version %s, this program %s; use one version",
                         p->head.version, SERVE_VERSION);
    if (bytes < sizeof p->head || (flags & MSG_TRUNC) || p->head.text_bytes != bytes - sizeof p->head)
        return kolo_fail(KOLO_EINPUT, "data_server=: a packet of kind %u has the wrong length", p->head.kind);
    p->text[p->head.text_bytes] = 0;
    return 1;
}

int serve_receive(int fd, serve_packet *packet, int *passed)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof *passed)];
    struct iovec part = {packet, sizeof packet->head + SERVE_TEXT};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = passed ? control : NULL,
                             .msg_controllen = passed ? sizeof control : 0};
    ssize_t bytes;
    if (passed) *passed = -1;
    while ((bytes = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) continue;
    if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
    if (bytes < 0) return kolo_fail(KOLO_EIO, "data_server=: cannot receive: %s", strerror(errno));
    if (bytes == 0) return kolo_fail(KOLO_EIO, "the other end closed the connection");
    if (passed) receive_descriptor(&message, passed);
    const int rc = check_packet(packet, (size_t)bytes, message.msg_flags);
    if (rc < 0 && passed && *passed >= 0) {
        close(*passed);
        *passed = -1;
    }
    return rc;
}
