/* The checksum of a shard's tables and attributes: whatever is changed is refused by name; older shards
 * have none; what leads out of the file is refused. */
#include "data_fixture.h"
#include "flip.h"

#include "data/shard/h5.h"
#include "tap.h"

static char path[512];

static fixture make(enum kolo_encoding encoding)
{
    fixture f = {.count = 9, .shards = 1, .height = 8, .width = 8, .channels = 3, .encoding = encoding};
    if (fixture_make(&f) < 0) diag("%s", kolo_error_text());
    snprintf(path, sizeof path, "%s/toy-train-00000-of-00001.h5", f.folder);
    return f;
}

static int opens(const fixture *f)
{
    kolo_dataset *d;
    const int rc = kolo_dataset_open(&d, f->folder);
    kolo_dataset_close(&d);
    return rc;
}

/* Byte address and length of a dataset. */
static uint64_t find(const char *name, uint64_t *bytes)
{
    kolo_h5_lock();
    hid_t file = kolo_h5_open(path, false), set = H5Dopen2(file, name, H5P_DEFAULT);
    const uint64_t at = H5Dget_offset(set);
    *bytes = H5Dget_storage_size(set);
    H5Dclose(set);
    H5Fclose(file);
    kolo_h5_unlock();
    return at;
}

static void test_tables(enum kolo_encoding encoding)
{
    static const char *const names[] = {
        "classes/name", "classes/source_id", "classes/count", "id",         "size",  "orig_size",
        "source",       "source_offset",     "label",         "crc32c",     "state", "stats/mean",
        "stats/std",    "stats/min",         "stats/max",     "stats/count"};
    fixture f = make(encoding);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint64_t bytes;
        const uint64_t at = find(names[i], &bytes);
        flip_bit(path, (int64_t)(8 * (at + bytes / 2)));
        const int rc = opens(&f);
        ok(rc == KOLO_EINPUT && strstr(kolo_error_text(), path), "%s, a flipped bit in /%s: refused: %s",
           encoding == KOLO_ENCODING_RAW ? "raw" : "jpeg", names[i], rc ? kolo_error_text() : "no");
        flip_bit(path, (int64_t)(8 * (at + bytes / 2)));
    }
    is_int(opens(&f), 0, "with all bits back it opens");
    fixture_remove(&f);
}

static void test_attributes(void)
{
    static const char *const texts[] = {"dataset", "generator", "color", "split"};
    fixture f = make(KOLO_ENCODING_RAW);
    for (size_t i = 0; i < 4; i++) {
        char text[64];
        kolo_h5_lock();
        hid_t file = kolo_h5_open(path, true);
        kolo_h5_get_text(file, texts[i], text, sizeof text);
        text[0] ^= 1;
        kolo_h5_put_text(file, texts[i], text, 0);
        H5Fclose(file);
        kolo_h5_unlock();
        ok(opens(&f) == KOLO_EINPUT && strstr(kolo_error_text(), path), "attribute %s changed: refused: %s",
           texts[i], kolo_error_text());
        text[0] ^= 1;
        kolo_h5_lock();
        file = kolo_h5_open(path, true);
        kolo_h5_put_text(file, texts[i], text, 0);
        H5Fclose(file);
        kolo_h5_unlock();
    }
    is_int(opens(&f), 0, "with all of them back it opens");
    fixture_remove(&f);
}

static void set_version(uint32_t minor)
{
    const uint32_t version[2] = {1, minor};
    kolo_h5_lock();
    hid_t file = kolo_h5_open(path, true);
    kolo_h5_put_u32s(file, "format_version", version, 2);
    if (H5Aexists(file, "tables_crc32c") > 0) H5Adelete(file, "tables_crc32c");
    H5Fclose(file);
    kolo_h5_unlock();
}

static void test_versions(void)
{
    fixture f = make(KOLO_ENCODING_RAW);
    kolo_shard_header h;
    ok(kolo_shard_inspect(path, &h, NULL, NULL) == 0 && h.checksummed && h.version[1] == 2,
       "a shard that is packed now is 1.2 and has the checksum");
    set_version(1);
    is_int(opens(&f), 0, "a shard of 1.1, without the checksum: read");
    ok(kolo_shard_inspect(path, &h, NULL, NULL) == 0 && !h.checksummed,
       "and its header says that it has none");
    set_version(2);
    ok(opens(&f) == KOLO_EINPUT && strstr(kolo_error_text(), "tables_crc32c is missing"),
       "a shard of 1.2 without it: refused: %s", kolo_error_text());
    fixture_remove(&f);
}

/* Moves a dataset into another file. */
static void move_out(const char *name, const char *other)
{
    kolo_h5_lock();
    hid_t from = kolo_h5_open(path, true), to = kolo_h5_create(other);
    H5Ocopy(from, name, to, "moved", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(to);
    H5Ldelete(from, name, H5P_DEFAULT);
    H5Lcreate_external(other, "/moved", from, name, H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(from);
    kolo_h5_unlock();
}

/* Puts a dataset of 3 f64 in the place of /stats/mean whose values `list` keeps elsewhere. */
static void replace(hid_t list)
{
    const hsize_t n = 3;
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT), space = H5Screate_simple(1, &n, NULL);
    H5Ldelete(file, "stats/mean", H5P_DEFAULT);
    hid_t set = H5Dcreate2(file, "stats/mean", H5T_IEEE_F64LE, space, H5P_DEFAULT, list, H5P_DEFAULT);
    if (set < 0) diag("cannot create /stats/mean");
    H5Dclose(set);
    H5Sclose(space);
    H5Pclose(list);
    H5Fclose(file);
}

static void refused(int rc, const char *what, const char *name)
{
    ok(rc == KOLO_EINPUT && strstr(kolo_error_text(), path) && strstr(kolo_error_text(), name),
       "%s: refused: %s", what, kolo_error_text());
}

static void test_outside(bool sealed)
{
    static const char *const names[] = {"label", "images", "stats/mean", "classes/name"};
    const char *kind = sealed ? "1.2" : "1.1";
    char other[600], what[64];
    for (size_t i = 0; i < 4; i++) {
        fixture f = make(KOLO_ENCODING_RAW);
        snprintf(other, sizeof other, "%s/other.h5", f.folder);
        if (!sealed) set_version(1);
        move_out(names[i], other);
        snprintf(what, sizeof what, "%s, an external link /%s", kind, names[i]);
        refused(opens(&f), what, names[i]);
        fixture_remove(&f);
    }
    for (int virtual = 0; virtual < 2; virtual ++) {
        const hsize_t n = 3;
        fixture f = make(KOLO_ENCODING_RAW);
        if (!sealed) set_version(1);
        kolo_h5_lock();
        hid_t list = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &n, NULL);
        if (virtual) H5Pset_virtual(list, space, "other.h5", "anything", space);
        else H5Pset_external(list, "other.raw", 0, 24);
        H5Sclose(space);
        replace(list);
        kolo_h5_unlock();
        snprintf(what, sizeof what, "%s, %s /stats/mean", kind,
                 virtual ? "a virtual" : "external storage of");
        kolo_shard_stats stats;
        refused(sealed ? opens(&f) : kolo_shard_read_stats(path, &stats), what, "/stats");
        fixture_remove(&f);
    }
}

/* Puts `text` into the name of class 0, of three bytes, as another writer might. */
static void rename_class(const char *text)
{
    uint64_t bytes;
    const uint64_t at = find("classes/name", &bytes);
    const int fd = open(path, O_RDWR);
    kolo_file_pwrite(fd, path, text, 3, at);
    close(fd);
    if (kolo_shard_seal(path) < 0) diag("%s", kolo_error_text());
}

static void test_names(void)
{
    fixture f = make(KOLO_ENCODING_RAW);
    rename_class("a\nb");
    ok(opens(&f) == KOLO_EINPUT && strstr(kolo_error_text(), "the name of class 0"),
       "a line break in a class name: refused: %s", kolo_error_text());
    rename_class("\033[m");
    ok(opens(&f) == KOLO_EINPUT && !strchr(kolo_error_text(), '\033'),
       "an escape sequence in it: refused, and not printed: %s", kolo_error_text());
    rename_class("c00");
    is_int(opens(&f), 0, "a word is fine");
    kolo_h5_lock();
    hid_t file = kolo_h5_open(path, true);
    kolo_h5_put_text(file, "generator", "t\033[2J", 0);
    H5Fclose(file);
    kolo_h5_unlock();
    if (kolo_shard_seal(path) < 0) diag("%s", kolo_error_text());
    ok(opens(&f) == KOLO_EINPUT && strstr(kolo_error_text(), "control characters"),
       "an escape sequence in an attribute: refused: %s", kolo_error_text());
    fixture_remove(&f);
}

int main(void)
{
    test_names();
    test_tables(KOLO_ENCODING_RAW);
    test_tables(KOLO_ENCODING_JPEG);
    test_attributes();
    test_versions();
    test_outside(true);
    test_outside(false);
    return done_testing();
}
