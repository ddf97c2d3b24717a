#include "data_fixture.h"
#include "tap.h"

#include <sys/stat.h>

#include "data/shard/dataset.h"
#include "data/shard/h5.h"

static fixture make(int64_t count, int shards, enum kolo_encoding encoding)
{
    fixture f = {
        .count = count, .shards = shards, .height = 7, .width = 9, .channels = 3, .encoding = encoding};
    if (fixture_make(&f) < 0) diag("%s", kolo_error_text());
    return f;
}

static void shard_path(const fixture *f, int s, char *path)
{
    snprintf(path, 512, "%s/toy-train-%05d-of-%05d.h5", f->folder, s, f->shards);
}

static int opens(const fixture *f)
{
    kolo_dataset *d;
    int rc = kolo_dataset_open(&d, f->folder);
    kolo_dataset_close(&d);
    return rc;
}

static void test_round_trip(int shards)
{
    fixture f = make(23, shards, KOLO_ENCODING_RAW);
    kolo_dataset *d;
    uint8_t want[7 * 9 * 3], got[7 * 9 * 3];
    int same = 1, crc = 1, label = 1;
    char source[64];
    is_int(kolo_dataset_open(&d, f.folder), 0, "a split of %d shards opens", shards);
    for (int64_t i = 0; i < f.count; i++) {
        fixture_pixels(&f, i, want);
        same &= kolo_dataset_read(d, i, got) == 0 && memcmp(want, got, sizeof got) == 0;
        crc &= kolo_crc32c(0, got, sizeof got) == kolo_dataset_crc(d, i);
        label &= kolo_dataset_label(d, i) == i % 10;
    }
    ok(same, "%d shards: every sample comes back", shards);
    ok(crc && label, "%d shards: labels and checksums", shards);
    kolo_dataset_source(d, 22, source, sizeof source);
    is_text(source, "pic000022", "%d shards: the source path", shards);
    is_text(kolo_dataset_class_name(d, 3), "c03", "class names");
    is_text(kolo_dataset_class_name(d, 10), "", "no name beyond the last class");
    kolo_dataset_close(&d);
    fixture_remove(&f);
}

static void test_jpeg(void)
{
    fixture f = make(9, 2, KOLO_ENCODING_JPEG);
    kolo_dataset *d;
    int good = 1;
    is_int(kolo_dataset_open(&d, f.folder), 0, "a JPEG split opens");
    for (int64_t i = 0; d && i < f.count; i++) {
        const size_t bytes = kolo_dataset_bytes(d, i);
        uint8_t *blob = malloc(bytes);
        good &= kolo_dataset_read(d, i, blob) == 0 && kolo_crc32c(0, blob, bytes) == kolo_dataset_crc(d, i) &&
                kolo_image_sniff(blob, bytes) == KOLO_IMAGE_JPEG;
        free(blob);
    }
    ok(good, "every blob is a whole JPEG with its checksum");
    kolo_dataset_close(&d);
    fixture_remove(&f);
}

static void attribute(const char *path, const char *name, uint64_t value)
{
    kolo_h5_lock();
    hid_t file = kolo_h5_open(path, true);
    kolo_h5_put_u64(file, name, value);
    H5Fclose(file);
    kolo_h5_unlock();
}

static void version(const char *path, uint32_t major, uint32_t minor)
{
    const uint32_t v[2] = {major, minor};
    kolo_h5_lock();
    hid_t file = kolo_h5_open(path, true);
    kolo_h5_put_u32s(file, "format_version", v, 2);
    H5Fclose(file);
    kolo_h5_unlock();
}

static void test_versions(void)
{
    fixture f = make(5, 1, KOLO_ENCODING_RAW);
    char path[512];
    const hsize_t n = 3;
    const uint8_t data[3] = {1, 2, 3};
    shard_path(&f, 0, path);
    version(path, 1, 9);
    if (kolo_shard_seal(path) < 0) diag("%s", kolo_error_text());
    is_int(opens(&f), 0, "an unknown minor version is read");
    kolo_h5_lock();
    hid_t file = kolo_h5_open(path, true);
    kolo_h5_put_array(file, "novelty", H5T_STD_U8LE, 1, &n, data);
    H5Fclose(file);
    kolo_h5_unlock();
    is_int(opens(&f), 0, "an extra dataset is ignored");
    version(path, 2, 0);
    is_int(opens(&f), KOLO_EINPUT, "an unknown major version is refused");
    ok(strstr(kolo_error_text(), "2.0"), "and named: %s", kolo_error_text());
    fixture_remove(&f);
}

static void refused(const char *what, const fixture *f, const char *word)
{
    is_int(opens(f), KOLO_EINPUT, "%s is refused", what);
    ok(strstr(kolo_error_text(), word), "the message says so: %s", kolo_error_text());
}

static void test_damage(void)
{
    fixture f = make(12, 3, KOLO_ENCODING_RAW);
    char path[512], other[512];
    shard_path(&f, 1, path);
    attribute(path, "complete", 0);
    refused("an incomplete shard", &f, "incomplete");
    attribute(path, "complete", 1);
    is_int(opens(&f), 0, "completed again, it opens");
    attribute(path, "num_samples", 99);
    refused("a wrong sample count", &f, "00001-of");
    fixture_remove(&f);

    f = make(12, 3, KOLO_ENCODING_RAW);
    shard_path(&f, 1, path);
    if (truncate(path, kolo_file_size(path) / 2)) diag("truncate failed");
    refused("a truncated shard", &f, "00001-of");
    if (truncate(path, 0)) diag("truncate failed");
    refused("an empty shard", &f, "empty");
    if (chmod(f.folder, 0755) || chmod(path, 0) || (geteuid() == 0 && seteuid(65534)))
        diag("cannot become somebody who may not read it");
    is_int(opens(&f), KOLO_EIO, "a shard that one may not read: an I/O error");
    ok(strstr(kolo_error_text(), "Permission denied") != NULL, "which says so (%s)", kolo_error_text());
    if (getuid() == 0 && seteuid(0)) diag("cannot be root again");
    kolo_file_write_atomic(path, "hello, this is text", 19);
    refused("a foreign file", &f, "not an HDF5");
    unlink(path);
    refused("a missing shard", &f, "00001-of-00003.h5: there is no such file; copy it again or pack");
    fixture_remove(&f);

    f = make(12, 3, KOLO_ENCODING_RAW);
    shard_path(&f, 1, path);
    shard_path(&f, 2, other);
    rename(other, path);
    refused("shards in each other's place", &f, "kolo");
    fixture_remove(&f);
}

static void test_tables(void)
{
    fixture f = make(12, 1, KOLO_ENCODING_RAW);
    char path[512], index[512];
    kolo_shard_places p;
    uint8_t zero[12] = {0};
    shard_path(&f, 0, path);
    kolo_shard_inspect(path, NULL, &p, NULL);
    int fd = open(path, O_RDWR);
    kolo_file_pwrite(fd, path, zero, 4, p.crc);
    close(fd);
    refused("a damaged table", &f, "checksum");
    snprintf(index, sizeof index, "%s/toy-train.index", f.folder);
    char *text;
    kolo_file_read(index, &text, NULL);
    text[strlen(text) - 3] = 'x';
    kolo_file_write_atomic(index, text, strlen(text));
    free(text);
    refused("an edited manifest", &f, "checksum");
    kolo_file_write_atomic(index, "kolo 7 \n", 8);
    refused("a manifest of the future", &f, "version 7");
    unlink(index);
    refused("a folder without manifest", &f, "no manifest");
    fixture_remove(&f);
    refused("a folder that is not there", &f, "No such");
}

static int command(char *out, size_t size, const char *format, const char *path)
{
    char line[1024];
    snprintf(line, sizeof line, format, path);
    FILE *pipe = popen(line, "r");
    if (!pipe) return -1;
    size_t n = fread(out, 1, size - 1, pipe);
    out[n] = 0;
    return pclose(pipe);
}

static void test_h5_tools(void)
{
    fixture f = make(500, 1, KOLO_ENCODING_RAW);
    char path[512];
    static char text[65536];
    shard_path(&f, 0, path);
    if (system("command -v h5dump >/dev/null 2>&1") != 0) {
        skip("h5dump is not installed");
        skip("h5dump is not installed");
        skip("h5dump is not installed");
    } else {
        command(text, sizeof text, "h5dump -d /label -c 5 -y -w 200 '%s'", path);
        ok(strstr(text, "0, 1, 2, 3, 4"), "h5dump reads the labels");
        command(text, sizeof text, "h5dump -H -p -d /images '%s'", path);
        ok(strstr(text, "CONTIGUOUS") && strstr(text, "OFFSET 1048576"),
           "h5dump sees one contiguous array at 1 MiB");
        command(text, sizeof text, "h5dump -d /images -s 499,6,8,0 -c 1,1,1,3 -y -w 200 '%s'", path);
        uint8_t want[7 * 9 * 3];
        char line[64];
        fixture_pixels(&f, 499, want);
        const uint8_t *last = want + sizeof want - 3;
        snprintf(line, sizeof line, "%d, %d, %d", last[0], last[1], last[2]);
        ok(strstr(text, line), "h5dump reads the last pixel of the last image");
    }
    fixture_remove(&f);
}

int main(void)
{
    test_round_trip(1);
    test_round_trip(4);
    test_jpeg();
    test_versions();
    test_damage();
    test_tables();
    test_h5_tools();
    return done_testing();
}
