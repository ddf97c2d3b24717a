/* Makes an LMDB: lmdb_make FOLDER < rows "key TAB FILE" or "key TAB FORM CHANNELS HEIGHT WIDTH LABEL
 * FILE", of which the second are values of Caffe's Datum: FORM `pixels` (planes), `encoded` (an
 * image file) or `floats`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "kolo/error.h"

#ifndef KOLO_LMDB

int main(void)
{
    fprintf(stderr, "built without liblmdb\n");
    return 77;
}

#else

#include <lmdb.h>

static size_t put_varint(uint8_t *to, uint64_t value)
{
    size_t n = 0;
    for (; value > 127; value >>= 7) to[n++] = (uint8_t)(value | 128);
    to[n++] = (uint8_t)value;
    return n;
}

static size_t put_number(uint8_t *to, int field, int64_t value)
{
    to[0] = (uint8_t)(field << 3);
    return 1 + put_varint(to + 1, (uint64_t)value);
}

/* In the order of Caffe's own writer: by field number. */
static size_t make_datum(const char *form, const int64_t numbers[4], const char *data, size_t bytes,
                         uint8_t *to)
{
    size_t n = 0;
    for (int i = 0; i < 3; i++) n += put_number(to + n, 1 + i, numbers[i]);
    if (strcmp(form, "floats") != 0) {
        to[n++] = 4 << 3 | 2;
        n += put_varint(to + n, bytes);
        memcpy(to + n, data, bytes);
        n += bytes;
    }
    n += put_number(to + n, 5, numbers[3]);
    if (strcmp(form, "floats") == 0) {
        to[n++] = 6 << 3 | 5;
        memcpy(to + n, "\0\0\200?", 4);
        n += 4;
    }
    return n + put_number(to + n, 7, strcmp(form, "encoded") == 0);
}

static int put(MDB_txn *txn, MDB_dbi dbi, char *line)
{
    char *tab = strchr(line, '\t'), form[16] = "", file[512], *data;
    size_t bytes;
    int64_t n[4];
    if (!tab) return 2;
    *tab = 0;
    const bool datum =
        sscanf(tab + 1, "%15s %ld %ld %ld %ld %511s", form, &n[0], &n[1], &n[2], &n[3], file) == 6;
    if (!datum) snprintf(file, sizeof file, "%s", tab + 1);
    if (kolo_file_read(file, &data, &bytes) < 0) return fprintf(stderr, "%s\n", kolo_error_text()), 3;
    uint8_t *message = malloc(bytes + 128);
    MDB_val key = {strlen(line), line}, value = {bytes, data};
    if (datum) value = (MDB_val){make_datum(form, n, data, bytes, message), message};
    const int code = mdb_put(txn, dbi, &key, &value, 0);
    if (code) fprintf(stderr, "%s\n", mdb_strerror(code));
    free(message);
    free(data);
    return code ? 3 : 0;
}

int main(int argc, char **argv)
{
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    char line[1024];
    int rc = 0;
    if (argc != 2 || mdb_env_create(&env) || mdb_env_set_mapsize(env, 1 << 30) ||
        mdb_env_open(env, argv[1], 0, 0644) || mdb_txn_begin(env, NULL, 0, &txn) ||
        mdb_dbi_open(txn, NULL, 0, &dbi))
        return fprintf(stderr, "usage: lmdb_make FOLDER < rows\n"), 78;
    while (rc == 0 && fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        rc = put(txn, dbi, line);
    }
    if (mdb_txn_commit(txn) && rc == 0) rc = 3;
    mdb_env_close(env);
    return rc;
}

#endif
