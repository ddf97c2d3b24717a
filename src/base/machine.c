#include "base/machine.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

enum { PATH_BYTES = 4096, LINE_BYTES = 4096, MOST_NUMA = 256, ARPHRD_LO = 772 };

/* The first line of a file, without its newline. */
static bool read_line(char *line, int bytes, const char *format, ...) __attribute__((format(printf, 3, 4)));
static bool read_line(char *line, int bytes, const char *format, ...)
{
    char path[PATH_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(path, sizeof path, format, list);
    va_end(list);
    FILE *f = fopen(path, "re");
    bool got = f && fgets(line, bytes, f);
    if (f) fclose(f);
    if (got) line[strcspn(line, "\n")] = 0;
    else *line = 0;
    return got;
}

static int by_name(const void *a, const void *b)
{
    const kolo_interface *x = a, *y = b;
    return x->rdma != y->rdma ? y->rdma - x->rdma : strcmp(x->name, y->name);
}

/* ---- network ------------------------------------------------------------------------------------------- */

static bool carries_route(const char *root, const char *name)
{
    char path[PATH_BYTES], line[512], interface[64];
    unsigned target, gateway, flags, rest, mask;
    bool found = false;
    snprintf(path, sizeof path, "%s/proc/net/route", root);
    FILE *f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof line, f))
        found = sscanf(line, "%63s %x %x %x %u %u %u %x", interface, &target, &gateway, &flags, &rest, &rest,
                       &rest, &mask) == 8 &&
                target == 0 && mask == 0 && !strcmp(interface, name);
    if (f) fclose(f);
    return found;
}

static bool read_interface(const char *root, const char *name, kolo_interface *i)
{
    char line[128], path[PATH_BYTES];
    struct stat st;
    if (!read_line(line, sizeof line, "%s/sys/class/net/%s/type", root, name)) return false;
    const int type = atoi(line);
    if (type == ARPHRD_LO) return false;
    *i = (kolo_interface){.route = carries_route(root, name)};
    snprintf(i->name, sizeof i->name, "%.63s", name);
    snprintf(path, sizeof path, "%s/sys/class/net/%s/device", root, name);
    snprintf(i->kind, sizeof i->kind, "%s",
             stat(path, &st) != 0 ? "virtual"
             : type == 32         ? "InfiniBand"
                                  : "Ethernet");
    read_line(line, sizeof line, "%s/sys/class/net/%s/operstate", root, name);
    i->up = !strcmp(line, "up") || !strcmp(line, "unknown");
    read_line(line, sizeof line, "%s/sys/class/net/%s/speed", root, name);
    i->gbits = atoi(line) > 0 ? atoi(line) / 1e3 : 0;
    return true;
}

static bool read_port(const char *root, const char *adapter, int port, kolo_interface *i)
{
    char line[128];
    const char *folder = "sys/class/infiniband";
    if (!read_line(line, sizeof line, "%s/%s/%s/ports/%d/state", root, folder, adapter, port)) return false;
    *i = (kolo_interface){.up = strstr(line, "ACTIVE") != NULL, .rdma = true};
    snprintf(i->name, sizeof i->name, "%.50s/%d", adapter, port);
    read_line(line, sizeof line, "%s/%s/%s/ports/%d/rate", root, folder, adapter, port);
    i->gbits = atof(line);
    read_line(line, sizeof line, "%s/%s/%s/ports/%d/link_layer", root, folder, adapter, port);
    snprintf(i->kind, sizeof i->kind, "%.23s", line);
    return true;
}

/* Calls for every name in a folder. */
static int each_name(const char *root, const char *folder, kolo_interface *list, int n, int most,
                     int (*add)(const char *root, const char *name, kolo_interface *list, int n, int most))
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", root, folder);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (*e->d_name != '.') n = add(root, e->d_name, list, n, most);
    if (dir) closedir(dir);
    return n;
}

static int add_interface(const char *root, const char *name, kolo_interface *list, int n, int most)
{
    return n < most && read_interface(root, name, &list[n]) ? n + 1 : n;
}

static int add_adapter(const char *root, const char *name, kolo_interface *list, int n, int most)
{
    for (int port = 1; n < most && read_port(root, name, port, &list[n]); port++) n++;
    return n;
}

int kolo_machine_interfaces(const char *root, kolo_interface *list, int most)
{
    int n = each_name(root, "sys/class/net", list, 0, most, add_interface);
    n = each_name(root, "sys/class/infiniband", list, n, most, add_adapter);
    qsort(list, (size_t)n, sizeof *list, by_name);
    return n;
}

/* ---- file systems -------------------------------------------------------------------------------------- */

/* mountinfo writes blanks, tabs, newlines and backslashes as \ooo. */
static void decode_octal(char *text)
{
    char *to = text;
    for (const char *from = text; *from; to++)
        if (*from == '\\' && strspn(from + 1, "01234567") >= 3) {
            *to = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
            from += 4;
        } else *to = *from++;
    *to = 0;
}

static bool is_below(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    if (n && folder[n - 1] == '/') n--;
    return !strncmp(path, folder, n) && (!path[n] || path[n] == '/');
}

/* By the number that the kernel gives it: where a root was entered by chroot, its own mount is in no list. */
static bool type_by_number(const char *root, const char *path, char type[64], char source[256])
{
    static const struct {
        unsigned long number;
        const char *type;
    } known[] = {{0xEF53, "ext4"},         {0x58465342, "xfs"},     {0x9123683E, "btrfs"},
                 {0x01021994, "tmpfs"},    {0x794C7630, "overlay"}, {0x2FC12FC1, "zfs"},
                 {0x73717368, "squashfs"}, {0x9FA0, "proc"},        {0x6969, "nfs"},
                 {0x0BD00BD0, "lustre"},   {0x47504653, "gpfs"},    {0x19830326, "beegfs"},
                 {0x00C36400, "ceph"},     {0xFF534D42, "cifs"},    {0x65735546, "fuse.unknown"}};
    char whole[PATH_BYTES];
    struct statfs fs;
    snprintf(whole, sizeof whole, "%s%s", root, path);
    if (statfs(whole, &fs) != 0) return false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].number == ((unsigned long)fs.f_type & 0xFFFFFFFFUL)) {
            snprintf(type, 64, "%s", known[i].type);
            snprintf(source, 256, "a mount that is not listed");
            return true;
        }
    return false;
}

bool kolo_machine_mount(const char *root, const char *path, char type[64], char source[256])
{
    char file[PATH_BYTES], line[LINE_BYTES], point[LINE_BYTES];
    size_t longest = 0;
    snprintf(file, sizeof file, "%s/proc/self/mountinfo", root);
    FILE *f = fopen(file, "re");
    if (!f) return false;
    while (fgets(line, sizeof line, f)) {
        char its_type[64], its_source[256];
        const char *rest = strstr(line, " - ");
        if (!rest || sscanf(line, "%*s %*s %*s %*s %4095s", point) != 1 ||
            sscanf(rest + 3, "%63s %255s", its_type, its_source) != 2)
            continue;
        decode_octal(point);
        /* of two on one folder the later covers the earlier */
        if (!is_below(path, point) || strlen(point) < longest) continue;
        longest = strlen(point);
        memcpy(type, its_type, sizeof its_type);
        memcpy(source, its_source, sizeof its_source);
        decode_octal(source);
    }
    fclose(f);
    return longest > 0 || type_by_number(root, path, type, source);
}

bool kolo_machine_mount_shared(const char *type)
{
    static const char *const shared[] = {"nfs", "lustre",    "gpfs",  "beegfs", "ceph",   "cifs",
                                         "smb", "glusterfs", "panfs", "wekafs", "pvfs2",  "orangefs",
                                         "afs", "gfs2",      "ocfs2", "dvs",    "quobyte"};
    if (!strncmp(type, "fuse.", 5)) return true;
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if (!strncmp(type, shared[i], strlen(shared[i]))) return true;
    return false;
}

/* ---- processors ---------------------------------------------------------------------------------------- */

/* Processors that a list such as 0-3,8 names; *first: the first of them. */
static int count_list(const char *list, int *first)
{
    int count = 0;
    *first = atoi(list);
    for (const char *p = list; *p; p += *p == ',') {
        char *end;
        const long low = strtol(p, &end, 10), high = *end == '-' ? strtol(end + 1, &end, 10) : low;
        count += end > p ? (int)(high - low + 1) : 0;
        p = end > p ? end : p + strcspn(p, ",");
    }
    return count;
}

static int numa_of(const char *root, int cpu)
{
    char path[PATH_BYTES];
    struct stat st;
    for (int node = 0; node < MOST_NUMA; node++) {
        snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/node%d", root, cpu, node);
        if (stat(path, &st) == 0) return node;
    }
    return -1;
}

static void add_frequency(const char *root, int cpu, kolo_processors *p)
{
    char line[64];
    const char *folder = "sys/devices/system/cpu";
    if (read_line(line, sizeof line, "%s/%s/cpu%d/cpufreq/scaling_governor", root, folder, cpu))
        snprintf(p->governor, sizeof p->governor, "%.31s", line);
    read_line(line, sizeof line, "%s/%s/cpu%d/cpufreq/scaling_max_freq", root, folder, cpu);
    const int mhz = atoi(line) / 1000;
    if (mhz > 0 && (!p->mhz || mhz < p->mhz)) p->mhz = mhz;
    read_line(line, sizeof line, "%s/%s/cpu%d/cpufreq/cpuinfo_max_freq", root, folder, cpu);
    if (atoi(line) / 1000 > p->most_mhz) p->most_mhz = atoi(line) / 1000;
    if (read_line(line, sizeof line, "%s/%s/cpu%d/thermal_throttle/package_throttle_count", root, folder,
                  cpu) &&
        atoll(line) > p->throttled)
        p->throttled = atoll(line);
}

void kolo_machine_processors(const char *root, const cpu_set_t *allowed, kolo_processors *p)
{
    char line[512];
    bool core[CPU_SETSIZE] = {false}, numa[MOST_NUMA] = {false};
    *p = (kolo_processors){.throttled = -1};
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, allowed)) continue;
        int first = cpu, node;
        p->cpus++;
        if (read_line(line, sizeof line, "%s/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
                      root, cpu)) {
            const int threads = count_list(line, &first);
            if (threads > p->threads) p->threads = threads;
        }
        p->cores += first < CPU_SETSIZE && !core[first];
        if (first < CPU_SETSIZE) core[first] = true;
        node = numa_of(root, cpu);
        p->numa += node >= 0 && !numa[node];
        if (node >= 0) numa[node] = true;
        add_frequency(root, cpu, p);
    }
}
