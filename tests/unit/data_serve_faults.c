/* Served batches: names that are taken, sockets that are not to be trusted, other options, other versions,
 * packets that are none. */
#include "data_serve_rig.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "data/serve/wire.h"

static kolo_dataset *set;
static seen want;

static int there(const char *text) { return strstr(kolo_error_text(), text) != NULL; }

/* A job that finds no server it can use sees the same and goes on. */
static void goes_alone(const char *what)
{
    process job = start(config_of(NULL), false, 0, 0, STEPS, -1);
    const seen got = result_of(&job);
    ok(!memcmp(got.crc, want.crc, sizeof got.crc) && got.served == 0, "%s: a job reads by itself", what);
    finish(&job);
}

static void is_served(const char *what)
{
    process job = start(config_of(NULL), false, 0, 0, STEPS, -1);
    const seen got = result_of(&job);
    ok(!memcmp(got.crc, want.crc, sizeof got.crc) && got.served == 200, "%s: a job is served", what);
    finish(&job);
}

static int open_here(kolo_loader_config c, kolo_server **server)
{
    c.dataset = set;
    c.serve = socket_path;
    return kolo_server_open(server, &c, 1);
}

static void test_names(void)
{
    struct sockaddr_un a;
    struct stat info;
    kolo_server *second;
    char lock[320], long_name[200];
    ok(serve_path("sweep-1", &a) == 0 && strstr(a.sun_path, "-sweep-1") &&
           !strncmp(a.sun_path, "/dev/shm/", 9),
       "a name is a socket in /dev/shm");
    is_int(serve_path("", &a), KOLO_ECONFIG, "no name");
    is_int(serve_path("a b", &a), KOLO_ECONFIG, "a name with a blank");
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    is_int(serve_path(long_name, &a), KOLO_ECONFIG, "a name that is too long");
    goes_alone("no server");
    process server = serve(config_of(NULL), 1);
    snprintf(lock, sizeof lock, "%s.lock", socket_path);
    ok(lstat(socket_path, &info) == 0 && S_ISSOCK(info.st_mode) && (info.st_mode & 0777) == 0600,
       "a socket has mode 600");
    ok(lstat(lock, &info) == 0 && (info.st_mode & 0777) == 0600, "its lock has mode 600");
    ok(open_here(config_of(NULL), &second) == KOLO_ECONFIG && there("runs on this node already") && !second,
       "a second server of the same name is refused");
    is_served("with the first");
    chmod(socket_path, 0666);
    goes_alone("a socket that others may write to");
    chmod(socket_path, 0600);
    end(&server);
    ok(access(socket_path, F_OK) < 0 && access(lock, F_OK) < 0, "a server that ends leaves nothing");
    server = serve(config_of(NULL), 1);
    kill(server.pid, SIGKILL);
    finish(&server);
    goes_alone("the socket of a dead server");
    server = serve(config_of(NULL), 1);
    is_served("after the next server took the name over");
    end(&server);
    fclose(fopen(socket_path, "w"));
    ok(open_here(config_of(NULL), &second) == KOLO_ECONFIG && there("not a socket"),
       "a file at the path of the socket: refused, and left alone");
    goes_alone("a file");
    unlink(socket_path);
}

/* By name: what a killed server leaves in /dev/shm. */
static void test_leavings(void)
{
    struct sockaddr_un a;
    char name[64], lock[200];
    snprintf(name, sizeof name, "test-%d", (int)getpid());
    serve_path(name, &a);
    snprintf(lock, sizeof lock, "%s.lock", a.sun_path);
    strncpy(socket_path, name, sizeof socket_path - 1);
    process server = serve(config_of(NULL), 1);
    ok(access(a.sun_path, F_OK) == 0, "a server by name listens in /dev/shm");
    kill(server.pid, SIGKILL);
    finish(&server);
    ok(access(a.sun_path, F_OK) == 0 && access(lock, F_OK) == 0, "a killed one leaves two names there");
    strncat(socket_path, "-next", sizeof socket_path - 1 - strlen(socket_path));
    server = serve(config_of(NULL), 1);
    ok(access(a.sun_path, F_OK) < 0 && access(lock, F_OK) < 0, "which the next server removes");
    end(&server);
    snprintf(socket_path, sizeof socket_path, "%s/socket", jpeg.folder);
}

static void test_memory(void)
{
    kolo_server *s;
    char lock[320];
    struct rlimit was, little = {.rlim_cur = 65536};
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was);
    little.rlim_max = was.rlim_max;
    setrlimit(RLIMIT_FSIZE, &little);
    ok(open_here(config_of(NULL), &s) == KOLO_EIO && there("cannot allocate") && there("lower prefetch"),
       "a ring that cannot have its memory");
    setrlimit(RLIMIT_FSIZE, &was);
    kolo_loader_config c = config_of(NULL);
    c.height = c.width = 8192, c.batch = 1 << 16;
    c.dataset = set;
    c.serve = socket_path;
    ok(kolo_server_open(&s, &c, 1) == KOLO_ECONFIG && there("MiB are missing"),
       "one that does not fit the machine");
    snprintf(lock, sizeof lock, "%s.lock", socket_path);
    ok(access(socket_path, F_OK) < 0 && access(lock, F_OK) < 0, "and nothing is left of either");
}

static void test_refusals(void)
{
    process server = serve(config_of(NULL), 1);
    struct {
        kolo_loader_config c;
        const char *text;
    } wrong[] = {{config_of(set), "seed=7 there, seed=8 here"},
                 {config_of(set), "augment=trivialaugment there, augment= here"},
                 {config_of(set), "shuffle=full there, shuffle=block:4 here"},
                 {config_of(set), "batch=24 there, batch=48 here"}};
    wrong[0].c.seed = 8;
    wrong[1].c.augment = NULL;
    wrong[2].c.shuffle = "block:4";
    wrong[3].c.batch = 48;
    for (int i = 0; i < 4; i++) {
        kolo_loader *l;
        wrong[i].c.serve = socket_path;
        const int rc = kolo_loader_create(&l, &wrong[i].c);
        ok(rc == KOLO_ECONFIG && there(wrong[i].text) && !l, "refused by name: %s", wrong[i].text);
    }
    kolo_loader *l;
    kolo_loader_config c = config_of(NULL);
    c.synthetic_count = 100;
    c.mix = (kolo_mix_config){0};
    c.serve = socket_path;
    ok(kolo_loader_create(&l, &c) == KOLO_ECONFIG && there("synthetic"), "synthetic images need no server");
    end(&server);
}

/* Sends bytes to the server as they are; true if it hangs up then. what: of the answer, or NULL. */
static int is_cut_off(const void *bytes, size_t n, const char *what)
{
    static serve_packet packet;
    struct sockaddr_un a;
    int fd, found = what == NULL, rc = 0;
    serve_path(socket_path, &a);
    if (serve_connect(&a, &fd) < 0) return 0;
    if (send(fd, bytes, n, MSG_NOSIGNAL) < 0) return 0;
    struct pollfd p = {fd, POLLIN, 0};
    while (rc >= 0 && poll(&p, 1, 10000) > 0) {
        rc = serve_receive(fd, &packet, NULL);
        found |= rc > 0 && packet.head.kind == SERVE_REFUSED && what && strstr(packet.text, what);
    }
    close(fd);
    return rc == KOLO_EIO && found;
}

static serve_packet packet_of(enum serve_kind kind, const char *text)
{
    serve_packet p = {
        .head = {SERVE_MAGIC, SERVE_VERSION, kind, (uint32_t)strlen(text), 0, {0, 1, 0, BATCH}}};
    memcpy(p.text, text, strlen(text));
    return p;
}

static void test_hostile(void)
{
    static serve_packet p;
    char noise[3000];
    process server = serve(config_of(NULL), 1);
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (char)(i * 7919 >> 3);
    ok(is_cut_off(noise, sizeof noise, NULL), "noise is cut off");
    ok(is_cut_off(noise, 1, NULL), "one byte");
    p = packet_of(SERVE_HELLO, "");
    ok(is_cut_off(&p, sizeof p.head - 8, NULL), "half a packet");
    p.head.text_bytes = 1 << 30;
    ok(is_cut_off(&p, sizeof p.head, NULL), "a text that is longer than the packet");
    p = packet_of(SERVE_HELLO, "");
    ok(is_cut_off(&p, sizeof p, NULL), "a packet that is longer than its text");
    memset(p.head.version, 'x', sizeof p.head.version);
    ok(is_cut_off(&p, sizeof p.head, NULL), "a version without an end");
    memcpy(p.head.version, "7.0/9", 6);
    ok(is_cut_off(&p, sizeof p.head, "7.0/9"), "another version is told so");
    p = packet_of(SERVE_HELLO, "data=other\n");
    ok(is_cut_off(&p, sizeof p.head + 11, "data=toy"), "another split too");
    const enum serve_kind turn[] = {SERVE_JOIN, SERVE_DONE, SERVE_WELCOME, (enum serve_kind)77};
    for (int i = 0; i < 4; i++) {
        p = packet_of(turn[i], "");
        ok(is_cut_off(&p, sizeof p.head, NULL), "kind %d without a hello", (int)turn[i]);
    }
    is_served("after all that");
    end(&server);
}

/* Rows beyond what a number holds, under the server's own key. */
static void test_huge_rows(void)
{
    static char key[SERVE_KEY];
    static serve_packet p;
    kolo_loader_config c = config_of(set);
    process server = serve(c, 1);
    serve_key(&c, key);
    p = packet_of(SERVE_HELLO, key);
    p.head.number[2] = INT64_MAX;
    ok(is_cut_off(&p, sizeof p.head + strlen(key), "wants 24 from row 9223372036854775807 on"),
       "rows from the last number on are refused with just these numbers");
    p.head.number[2] = p.head.number[3] = INT64_MIN;
    ok(is_cut_off(&p, sizeof p.head + strlen(key),
                  "wants -9223372036854775808 from row -9223372036854775808 on"),
       "likewise from the first on");
    is_served("after all that");
    end(&server);
}

/* Once welcomed: positions that make no sense. */
static void test_hostile_job(void)
{
    static const int64_t position[] = {-1, INT64_MIN, INT64_MAX, INT64_MAX / 2};
    static char key[SERVE_KEY];
    static serve_packet p;
    kolo_loader_config c = config_of(set);
    process server = serve(c, 1);
    struct sockaddr_un a;
    serve_key(&c, key);
    serve_path(socket_path, &a);
    for (int i = 0; i < 4; i++) {
        int fd, rc = 0;
        const int64_t number[] = {0, 1, 0, BATCH};
        struct pollfd wait = {-1, POLLIN, 0};
        if (serve_connect(&a, &fd) < 0) continue;
        serve_send(fd, SERVE_HELLO, 0, number, 4, key, -1);
        for (int k = 0; k < 3; k++) serve_send(fd, SERVE_DONE, position[(i + k) % 4], NULL, 0, "", -1);
        serve_send(fd, SERVE_JOIN, position[i], NULL, 0, "", -1);
        wait.fd = fd;
        while (rc >= 0 && poll(&wait, 1, 10000) > 0) rc = serve_receive(fd, &p, NULL);
        is_int(rc, KOLO_EIO, "a wish for batch %lld is cut off", (long long)position[i]);
        close(fd);
    }
    is_served("after all that");
    end(&server);
}

/* The next batch that is offered to a connection, or -1: none for ten seconds; of a welcome *slots is
 * kept. */
static int64_t next_ready(int fd, int64_t *slots)
{
    static serve_packet p;
    struct pollfd wait = {fd, POLLIN, 0};
    int rc = 0;
    while (rc >= 0 && poll(&wait, 1, 10000) > 0) {
        rc = serve_receive(fd, &p, NULL);
        if (rc > 0 && p.head.kind == SERVE_WELCOME) *slots = p.head.number[2];
        if (rc > 0 && p.head.kind == SERVE_READY) return p.head.position;
    }
    return -1;
}

static int joins(const char *key)
{
    const int64_t number[] = {0, 1, 0, BATCH};
    struct sockaddr_un a;
    int fd;
    serve_path(socket_path, &a);
    if (serve_connect(&a, &fd) < 0) return -1;
    serve_send(fd, SERVE_HELLO, 0, number, 4, key, -1);
    serve_send(fd, SERVE_JOIN, 0, NULL, 0, "", -1);
    return fd;
}

/* It is cut off while a batch is offered, which the job behind it must still get, and be able to give
 * back. */
static void test_deaf(void)
{
    static char key[SERVE_KEY];
    kolo_loader_config c = config_of(set);
    process server = serve(c, 2);
    serve_key(&c, key);
    const int deaf = joins(key), other = joins(key);
    int64_t slots = 1, got = 0;
    for (int64_t p = 0; p < slots; p++) got += next_ready(deaf, &slots) == p;
    for (int64_t p = 0; p < slots; p++) got += next_ready(other, &slots) == p;
    is_int((int)got, 2 * (int)slots, "two jobs are offered all that the ring holds");
    for (int64_t p = 0; p < slots; p++) serve_send(other, SERVE_DONE, p, NULL, 0, "", -1);
    for (int i = 0; i < 5000; i++) /* whose answers it does not read */
        for (int k = 0; k < 10000 && serve_send(deaf, SERVE_ASK, 0, NULL, 0, "", -1) < 0; k++) usleep(1000);
    for (int64_t p = 0; p < slots; p++) serve_send(deaf, SERVE_DONE, p, NULL, 0, "", -1);
    for (got = 0; got < 5 * slots && next_ready(other, &slots) == slots + got; got++)
        serve_send(other, SERVE_DONE, slots + got, NULL, 0, "", -1);
    is_int((int)got, 5 * (int)slots, "one that reads nothing is cut off; the other goes on");
    close(other);
    close(deaf);
    end(&server);
}

/* A segment as it should be, but that no slot holds what will be said of it. */
static int make_segment(int64_t *slot_bytes)
{
    loader_layout l;
    serve_segment s = {.magic = SERVE_MAGIC};
    loader_lay_slot(&l, BATCH, 3, BATCH * SIDE * SIDE * 3);
    *slot_bytes = (int64_t)l.bytes;
    for (int i = 0; i < SERVE_SLOTS; i++) s.position[i] = 1 << 20;
    const int fd = memfd_create("liar", MFD_ALLOW_SEALING);
    if (ftruncate(fd, SERVE_PAGE + (off_t)l.bytes) < 0 || pwrite(fd, &s, sizeof s, 0) < 0) return -1;
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK);
    return fd;
}

static void tell_wrong_slots(int fd)
{
    static serve_packet p;
    int64_t number[] = {0, BATCH, 1, 0};
    const int segment = make_segment(&number[3]);
    serve_send(fd, SERVE_WELCOME, 0, number, 4, "", segment);
    while (recv(fd, &p, sizeof p, 0) > 0)
        if (p.head.kind == SERVE_JOIN) {
            serve_send(fd, SERVE_JOINED, 0, NULL, 0, "", -1);
            for (int i = 0; i < STEPS + 4; i++) serve_send(fd, SERVE_READY, i, number, 1, "", -1);
        }
    close(segment);
}

/* A server that answers as it likes: the job must not believe it. how: 0 another version, 1 no segment, 2
 * hangs up, 3 absurd slots, 4 slots that hold something else */
static pid_t lie(int how)
{
    struct sockaddr_un a;
    serve_path(socket_path, &a);
    const int listening = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    fchmod(listening, 0600);
    if (bind(listening, (struct sockaddr *)&a, sizeof a) < 0 || listen(listening, 4) < 0) return -1;
    fflush(stdout);
    const pid_t pid = fork();
    if (pid) {
        close(listening);
        return pid;
    }
    for (;;) {
        static serve_packet p;
        const int fd = accept(listening, NULL, NULL);
        if (fd < 0 || recv(fd, &p, sizeof p, 0) < 0) _exit(1);
        const int64_t number[] = {0, BATCH, 3, 1 << 20}, absurd[] = {0, BATCH, 1 << 30, INT64_MAX};
        p = packet_of(SERVE_WELCOME, "");
        if (how == 0) memcpy(p.head.version, "7.0/9", 6);
        if (how < 2) memcpy(p.head.number, number, sizeof number);
        if (how == 4) tell_wrong_slots(fd);
        else if (how == 3) serve_send(fd, SERVE_WELCOME, 0, absurd, 4, "", listening);
        else if (how != 2 && send(fd, &p, sizeof p.head, 0) < 0) _exit(1);
        close(fd);
    }
}

static void test_liars(void)
{
    static const char *const what[] = {"a server of another version", "one without a segment",
                                       "one that hangs up", "one with absurd sizes",
                                       "one whose slots hold something else"};
    for (int how = 0; how < 5; how++) {
        const pid_t pid = lie(how);
        goes_alone(what[how]);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        unlink(socket_path);
    }
}

/* Lines as Slurm's job_container/tmpfs makes them, and others. */
static void test_private(void)
{
    char path[300];
    snprintf(path, sizeof path, "%s/mounts", jpeg.folder);
    FILE *f = fopen(path, "w");
    fprintf(f, "22 28 0:20 / /dev/shm rw,nosuid,nodev - tmpfs tmpfs rw\n"
               "90 28 8:1 /var/slurm/1234/.1234/_tmp /tmp rw,relatime - ext4 /dev/sda1 rw\n");
    fclose(f);
    ok(serve_private_shm(path, "1234"), "job 1234 has a /tmp and a /dev/shm of its own");
    ok(!serve_private_shm(path, "123") && !serve_private_shm(path, NULL), "other jobs have not");
    ok(!serve_private_shm("/nowhere", "1234"), "nor where nobody can tell");
}

int main(void)
{
    kolo_loader_config c = config_of(NULL);
    if (rig_open() < 0 || kolo_dataset_open(&set, jpeg.folder) < 0) {
        diag("%s", kolo_error_text());
        return 1;
    }
    c.dataset = set;
    look(c, 0, STEPS, -1, -1, -1, &want);
    test_names();
    test_leavings();
    test_memory();
    test_refusals();
    test_hostile();
    test_huge_rows();
    test_hostile_job();
    test_deaf();
    test_liars();
    test_private();
    kolo_dataset_close(&set);
    fixture_remove(&jpeg);
    return done_testing();
}
