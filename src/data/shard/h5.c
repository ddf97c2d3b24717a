#include "data/shard/h5.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "kolo/error.h"

static pthread_mutex_t h5_mutex = PTHREAD_MUTEX_INITIALIZER;

#define LONGEST_TEXT 60000 /* an attribute must stay below 64 KiB */
#define SMALL_OBJECT 65536 /* objects below this are not aligned */
/* data begins on a 1 MiB boundary: a multiple of Lustre stripes, fit for O_DIRECT */
#define ALIGNMENT (1u << 20)

/* Before its first call HDF5 is set not to clean up at exit: what is open is closed by its owner, and a file
 * whose close has failed, as of a full disk, it would close once more and crash. */
void kolo_h5_lock(void)
{
    static bool set;
    pthread_mutex_lock(&h5_mutex);
    if (!set) H5dont_atexit();
    set = true;
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void kolo_h5_unlock(void) { pthread_mutex_unlock(&h5_mutex); }

static herr_t set_bounds(hid_t list)
{
#if H5_VERSION_GE(1, 10, 2)
    return H5Pset_libver_bounds(list, H5F_LIBVER_V18, H5F_LIBVER_V18);
#else
    return H5Pset_libver_bounds(list, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
#endif
}

static hid_t file_access(void)
{
    hid_t list = H5Pcreate(H5P_FILE_ACCESS);
    if (list < 0) return list;
    herr_t bad = set_bounds(list);
    if (bad >= 0) bad = H5Pset_alignment(list, SMALL_OBJECT, ALIGNMENT);
    if (bad >= 0) bad = H5Pset_fclose_degree(list, H5F_CLOSE_STRONG);
#if H5_VERSION_GE(1, 14, 0) || (H5_VERS_MINOR == 12 && H5_VERS_RELEASE >= 1) || \
    (H5_VERS_MINOR == 10 && H5_VERS_RELEASE >= 7)
    if (bad >= 0) bad = H5Pset_file_locking(list, 0, 1);
#endif
    if (bad >= 0) return list;
    H5Pclose(list);
    return -1;
}

hid_t kolo_h5_create(const char *path)
{
    hid_t access = file_access(), create = H5Pcreate(H5P_FILE_CREATE), file = -1;
    if (access >= 0 && create >= 0 && H5Pset_obj_track_times(create, 0) >= 0) {
        unlink(path); /* or a link that somebody put there would be followed */
        file = H5Fcreate(path, H5F_ACC_EXCL, create, access);
    }
    if (create >= 0) H5Pclose(create);
    if (access >= 0) H5Pclose(access);
    return file;
}

hid_t kolo_h5_open(const char *path, bool write)
{
    hid_t access = file_access();
    if (access < 0) return access;
    hid_t file = H5Fopen(path, write ? H5F_ACC_RDWR : H5F_ACC_RDONLY, access);
    H5Pclose(access);
    return file;
}

hid_t kolo_h5_group(hid_t file, const char *name)
{
    hid_t create = H5Pcreate(H5P_GROUP_CREATE), group = -1;
    if (create >= 0 && H5Pset_obj_track_times(create, 0) >= 0)
        group = H5Gcreate2(file, name, H5P_DEFAULT, create, H5P_DEFAULT);
    if (create >= 0) H5Pclose(create);
    return group;
}

/* Creates or overwrites in place: the finishing step changes values, never sizes. */
static int put_attribute(hid_t object, const char *name, hid_t type, hid_t space, const void *data)
{
    hid_t attribute = H5Aexists(object, name) > 0
                          ? H5Aopen(object, name, H5P_DEFAULT)
                          : H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    if (attribute < 0) return -1;
    herr_t bad = H5Awrite(attribute, type, data);
    H5Aclose(attribute);
    return bad < 0 ? -1 : 0;
}

int kolo_h5_put_text(hid_t object, const char *name, const char *text, size_t size)
{
    size_t length = strlen(text);
    if (size == 0) size = length ? length : 1;
    if (size > LONGEST_TEXT) size = LONGEST_TEXT;
    char *buffer = kolo_alloc(size);
    if (!buffer) return KOLO_ENOMEM;
    memcpy(buffer, text, length < size ? length : size);
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    int bad = -1;
    if (type >= 0 && space >= 0 && H5Tset_size(type, size) >= 0 &&
        H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0)
        bad = put_attribute(object, name, type, space, buffer);
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    free(buffer);
    return bad;
}

int kolo_h5_put_u64(hid_t object, const char *name, uint64_t value)
{
    hid_t space = H5Screate(H5S_SCALAR);
    if (space < 0) return -1;
    int bad = put_attribute(object, name, H5T_STD_U64LE, space, &value);
    H5Sclose(space);
    return bad;
}

int kolo_h5_put_u32s(hid_t object, const char *name, const uint32_t *values, int n)
{
    hsize_t shape[1] = {(hsize_t)n};
    hid_t space = H5Screate_simple(1, shape, NULL);
    if (space < 0) return -1;
    int bad = put_attribute(object, name, H5T_STD_U32LE, space, values);
    H5Sclose(space);
    return bad;
}

static int get_attribute(hid_t object, const char *name, hid_t type, hssize_t n, void *data)
{
    if (H5Aexists(object, name) <= 0) return -1;
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    if (attribute < 0) return -1;
    hid_t space = H5Aget_space(attribute), stored = H5Aget_type(attribute);
    int bad = -1;
    if (space >= 0 && stored >= 0 && H5Sget_simple_extent_npoints(space) == n &&
        H5Tget_class(stored) == H5Tget_class(type))
        bad = H5Aread(attribute, type, data) < 0 ? -1 : 0;
    if (stored >= 0) H5Tclose(stored);
    if (space >= 0) H5Sclose(space);
    H5Aclose(attribute);
    return bad;
}

int kolo_h5_get_text(hid_t object, const char *name, char *text, size_t size)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    int bad = -1;
    memset(text, 0, size);
    if (type >= 0 && H5Tset_size(type, size) >= 0 && H5Tset_strpad(type, H5T_STR_NULLTERM) >= 0 &&
        H5Tset_cset(type, H5T_CSET_UTF8) >= 0)
        bad = get_attribute(object, name, type, 1, text);
    if (type >= 0) H5Tclose(type);
    text[size - 1] = 0;
    return bad;
}

int kolo_h5_get_u64(hid_t object, const char *name, uint64_t *value)
{
    return get_attribute(object, name, H5T_NATIVE_UINT64, 1, value);
}

int kolo_h5_get_u32s(hid_t object, const char *name, uint32_t *values, int n)
{
    return get_attribute(object, name, H5T_NATIVE_UINT32, n, values);
}

static hid_t contiguous_list(void)
{
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    if (list >= 0 && H5Pset_layout(list, H5D_CONTIGUOUS) >= 0 &&
        H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY) >= 0 &&
        H5Pset_fill_time(list, H5D_FILL_TIME_NEVER) >= 0 && H5Pset_obj_track_times(list, 0) >= 0)
        return list;
    if (list >= 0) H5Pclose(list);
    return -1;
}

int kolo_h5_put_array(hid_t file, const char *name, hid_t type, int rank, const hsize_t *shape,
                      const void *data)
{
    hid_t list = contiguous_list(), space = H5Screate_simple(rank, shape, NULL), set = -1;
    herr_t bad = -1;
    if (list >= 0 && space >= 0) set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    if (set >= 0) {
        bad = 0;
        if (data && H5Sget_simple_extent_npoints(space) > 0)
            bad = H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data);
        H5Dclose(set);
    }
    if (space >= 0) H5Sclose(space);
    if (list >= 0) H5Pclose(list);
    return bad < 0 ? -1 : 0;
}

static bool type_fits(hid_t set, hid_t type)
{
    hid_t stored = H5Dget_type(set);
    bool fits = stored >= 0 && H5Tequal(stored, type) > 0;
    if (stored >= 0) H5Tclose(stored);
    return fits;
}

bool kolo_h5_is_plain(hid_t set)
{
    hid_t list = H5Dget_create_plist(set);
    bool fits = list >= 0 && H5Pget_layout(list) == H5D_CONTIGUOUS && H5Pget_nfilters(list) == 0 &&
                H5Pget_external_count(list) == 0;
    if (list >= 0) H5Pclose(list);
    return fits;
}

static bool shape_fits(hid_t set, int rank, const hsize_t *shape)
{
    hsize_t stored[8] = {0};
    hid_t space = H5Dget_space(set);
    bool fits = space >= 0 && H5Sget_simple_extent_ndims(space) == rank && rank <= 8 &&
                H5Sget_simple_extent_dims(space, stored, NULL) == rank;
    for (int i = 0; fits && i < rank; i++) fits = stored[i] == shape[i];
    if (space >= 0) H5Sclose(space);
    return fits;
}

/* Only what is contiguous, here and not empty has an address; that is asked first, since it is quick. */
static bool is_here(hid_t set, uint64_t *place)
{
    const haddr_t address = H5Dget_offset(set);
    *place = address == HADDR_UNDEF ? 0 : (uint64_t)address;
    return address != HADDR_UNDEF || (H5Dget_storage_size(set) == 0 && kolo_h5_is_plain(set));
}

int kolo_h5_place(hid_t file, const char *name, hid_t type, int rank, const hsize_t *shape, uint64_t *place)
{
    hid_t set = H5Dopen2(file, name, H5P_DEFAULT);
    if (set < 0) return -1;
    const bool fits = type_fits(set, type) && shape_fits(set, rank, shape) && is_here(set, place);
    H5Dclose(set);
    return fits ? 0 : -1;
}

int kolo_h5_shape(hid_t file, const char *name, int rank, hsize_t *shape)
{
    hid_t set = H5Dopen2(file, name, H5P_DEFAULT);
    if (set < 0) return -1;
    hid_t space = H5Dget_space(set);
    int bad = -1;
    if (space >= 0 && H5Sget_simple_extent_ndims(space) == rank &&
        H5Sget_simple_extent_dims(space, shape, NULL) == rank)
        bad = 0;
    if (space >= 0) H5Sclose(space);
    H5Dclose(set);
    return bad;
}

static int get_array(hid_t file, const char *name, hid_t type, void *data, bool any)
{
    uint64_t place;
    hid_t set = H5Dopen2(file, name, H5P_DEFAULT);
    if (set < 0) return -1;
    herr_t bad = any || is_here(set, &place) ? H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) : -1;
    H5Dclose(set);
    return bad < 0 ? -1 : 0;
}

int kolo_h5_get_array(hid_t file, const char *name, hid_t type, void *data)
{
    return get_array(file, name, type, data, false);
}

int kolo_h5_get_any(hid_t file, const char *name, hid_t type, void *data)
{
    return get_array(file, name, type, data, true);
}

typedef struct way_out {
    char *name;
    size_t size;
} way_out;

static herr_t find_way_out(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
    const way_out *to = context;
    (void)group;
    if (info->type == H5L_TYPE_HARD) return 0;
    const size_t length = strlen(name) < to->size ? strlen(name) : to->size - 1;
    memcpy(to->name, name, length);
    to->name[length] = 0;
    return 1;
}

bool kolo_h5_is_closed(hid_t file, char *name, size_t size)
{
    way_out to = {name, size};
    return H5Lvisit(file, H5_INDEX_NAME, H5_ITER_NATIVE, find_way_out, &to) <= 0;
}

bool kolo_h5_has(hid_t file, const char *name)
{
    /* H5Lexists wants every group on the way to exist */
    char part[256];
    size_t length = strlen(name);
    if (length >= sizeof part) return false;
    for (size_t i = 1; i <= length; i++) {
        if (name[i] != '/' && name[i] != 0) continue;
        memcpy(part, name, i);
        part[i] = 0;
        if (H5Lexists(file, part, H5P_DEFAULT) <= 0) return false;
    }
    return true;
}
