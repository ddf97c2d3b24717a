#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "comm/core/transport/lines.h"
#include "kolo/error.h"

/* 0: not usable; the larger the better. Bridges of containers and virtual machines have addresses that
 * other nodes do not reach. */
static int worth(const struct ifaddrs *at, const char *wanted)
{
    static const char *const inner[] = {"docker", "virbr", "veth", "br-", "cni", "flannel"};
    char text[INET6_ADDRSTRLEN] = "";
    if (!at->ifa_addr || !(at->ifa_flags & IFF_UP)) return 0;
    int family = at->ifa_addr->sa_family;
    const void *address =
        family == AF_INET ? (const void *)&((const struct sockaddr_in *)(const void *)at->ifa_addr)->sin_addr
                          : &((const struct sockaddr_in6 *)(const void *)at->ifa_addr)->sin6_addr;
    if ((family != AF_INET && family != AF_INET6) || !inet_ntop(family, address, text, sizeof text)) return 0;
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)address)) return 0;
    if (wanted)
        return strcmp(wanted, at->ifa_name) == 0 || strcmp(wanted, text) == 0 ? family == AF_INET ? 2 : 1 : 0;
    if (at->ifa_flags & IFF_LOOPBACK) return family == AF_INET ? 2 : 1;
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++)
        if (strncmp(at->ifa_name, inner[i], strlen(inner[i])) == 0) return family == AF_INET ? 4 : 3;
    return family == AF_INET ? 6 : 5;
}

int line_find_address(line_address *address)
{
    const char *wanted = getenv("KOLO_COMM_INTERFACE");
    struct ifaddrs *all = NULL, *best = NULL;
    if (wanted && !*wanted) wanted = NULL;
    if (getifaddrs(&all) < 0)
        return kolo_fail(KOLO_ELAUNCH, "comm: the network interfaces of this host cannot be listed");
    for (struct ifaddrs *at = all; at; at = at->ifa_next)
        if (worth(at, wanted) > (best ? worth(best, wanted) : 0)) best = at;
    if (best) {
        address->length =
            best->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        memcpy(&address->address, best->ifa_addr, address->length);
    }
    freeifaddrs(all);
    if (best) return 0;
    return kolo_fail(
        KOLO_ECONFIG,
        "comm: no network interface %s that is up; see `ip address`, and name one with KOLO_COMM_INTERFACE",
        wanted ? wanted : "");
}

int line_listen(line_address *address, int *fd)
{
    struct sockaddr *bound = (struct sockaddr *)&address->address;
    socklen_t length = sizeof address->address;
    address->pid = (int32_t)getpid();
    *fd = socket(bound->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0) return line_fail_system("socket");
    if (bind(*fd, bound, address->length) < 0) return line_fail_system("bind");
    if (listen(*fd, SOMAXCONN) < 0) return line_fail_system("listen");
    if (getsockname(*fd, bound, &length) < 0) return line_fail_system("getsockname");
    address->length = length;
    if (getrandom(address->cookie, sizeof address->cookie, 0) != (ssize_t)sizeof address->cookie)
        return line_fail_system("getrandom");
    return 0;
}

/* Looked at as a whole, so that the time tells nothing. */
bool line_same_cookie(const unsigned char left[16], const unsigned char right[16])
{
    unsigned char differs = 0;
    for (size_t i = 0; i < 16; i++) differs |= left[i] ^ right[i];
    return !differs;
}
