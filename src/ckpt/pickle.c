#include "ckpt/pickle.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ckpt/reader.h"
#include "kolo/error.h"

enum { VALUES = 1 << 20 }; /* a thousand tensors with the state of their optimizer need some 100,000 */

/* ---- the names that may be said ---- */

enum global { DICT_OF, TENSOR_OF, PARAMETER_OF, STORAGE_OF, PLAIN };
static const struct {
    const char *module, *name;
    enum global what;
    enum kolo_dtype type;
} global_table[] = {
    {"collections", "OrderedDict", DICT_OF, 0},
    {"torch._utils", "_rebuild_tensor_v2", TENSOR_OF, 0},
    {"torch._utils", "_rebuild_parameter", PARAMETER_OF, 0},
    {"torch", "FloatStorage", STORAGE_OF, KOLO_F32},
    {"torch", "HalfStorage", STORAGE_OF, KOLO_F16},
    {"torch", "BFloat16Storage", STORAGE_OF, KOLO_BF16},
    {"torch", "DoubleStorage", STORAGE_OF, KOLO_F64},
    {"torch", "LongStorage", STORAGE_OF, KOLO_I64},
    {"torch", "IntStorage", STORAGE_OF, KOLO_I32},
    {"torch", "ShortStorage", STORAGE_OF, KOLO_I16},
    {"torch", "CharStorage", STORAGE_OF, KOLO_I8},
    {"torch", "ByteStorage", STORAGE_OF, KOLO_U8},
    {"torch", "BoolStorage", STORAGE_OF, KOLO_BOOL},
    /* from here on: options and figures of the training, which checkpoints hold beside the weights */
    {"argparse", "Namespace", PLAIN, 0},
    {"numpy.core.multiarray", "scalar", PLAIN, 0},
    {"numpy._core.multiarray", "scalar", PLAIN, 0},
    {"numpy", "dtype", PLAIN, 0},
    {"_codecs", "encode", PLAIN, 0}, /* how protocol 2 writes bytes */
    {"torch", "Size", PLAIN, 0},
    {"torch", "device", PLAIN, 0},
};

static int broken(const pickle *p, const char *what)
{
    return kolo_fail(KOLO_EINPUT, "%s: not a whole PyTorch file: its pickle %s; copy or download it again",
                     p->path, what);
}

static const char cure[] =
    "nothing of it was executed. Where the file comes from a trusted place, write its tensors alone: "
    "torch.save(model.state_dict(), FILE)";

static int refuse_global(const pickle *p, const char *module, size_t m, const char *name, size_t n)
{
    const bool rebuilt =
        m == 12 && !memcmp(module, "torch._utils", 12) && n > 9 && !memcmp(name, "_rebuild_", 9);
    const bool stored = m == 5 && !memcmp(module, "torch", 5) && n > 7 && !memcmp(name + n - 7, "Storage", 7);
    if (rebuilt || stored)
        return kolo_fail(KOLO_EINPUT,
                         "%s: it holds tensors of a kind that is not read here (%.*s.%.*s): write them "
                         "dense, of real numbers in f32: "
                         "torch.save({k: v.to_dense().float() for k, v in model.state_dict().items()}, FILE)",
                         p->path, (int)m, module, (int)(n > 80 ? 80 : n), name);
    return kolo_fail(KOLO_EINPUT, "%s: its pickle names %.*s.%.*s, which no dict of tensors needs; %s",
                     p->path, (int)(m > 80 ? 80 : m), module, (int)(n > 80 ? 80 : n), name, cure);
}

/* ---- values and stack ---- */

static int32_t pickle_make(pickle *p, enum pickle_kind kind)
{
    if (p->values >= VALUES) return (int32_t)broken(p, "holds too many values");
    if (kolo_grow(&p->value, &p->value_capacity, p->values, sizeof *p->value) < 0) return KOLO_ENOMEM;
    p->value[p->values] = (pickle_value){.kind = kind};
    return (int32_t)p->values++;
}

static int push(pickle *p, int32_t value)
{
    if (value < 0) return value;
    KOLO_TRY(kolo_grow(&p->stack, &p->stack_capacity, p->depth, sizeof *p->stack));
    p->stack[p->depth++] = value;
    return 0;
}

static int push_new(pickle *p, enum pickle_kind kind, int64_t number)
{
    int32_t value = pickle_make(p, kind);
    if (value >= 0) p->value[value].number = number;
    return push(p, value);
}

static int push_text(pickle *p, const unsigned char *text, uint64_t length)
{
    int32_t value = pickle_make(p, PICKLE_TEXT);
    if (value >= 0) p->value[value].text = (const char *)text, p->value[value].count = (int64_t)length;
    return push(p, value);
}

/* Where the values above the last mark begin: none may be taken from below it. */
static int64_t floor_of(const pickle *p) { return p->marks ? p->mark[p->marks - 1] : 0; }

static int pop(pickle *p, int32_t *value)
{
    if (p->depth <= floor_of(p)) return broken(p, "takes more from its stack than is there");
    *value = p->stack[--p->depth];
    return 0;
}

static int top(const pickle *p, int32_t *value)
{
    if (p->depth <= floor_of(p)) return broken(p, "takes more from its stack than is there");
    *value = p->stack[p->depth - 1];
    return 0;
}

static int add_items(pickle *p, int32_t to, int64_t from, int64_t until)
{
    pickle_value *v = &p->value[to];
    for (int64_t i = from; i < until; i++) {
        KOLO_TRY(kolo_grow(&v->item, &v->capacity, v->count, sizeof *v->item));
        v->item[v->count++] = p->stack[i];
    }
    return 0;
}

/* The last mark's place goes to *from; the values above it stay on the stack until the caller has used
 * them. */
static int pop_mark(pickle *p, int64_t *from)
{
    if (!p->marks) return broken(p, "asks for a mark that was not set");
    *from = p->mark[--p->marks];
    return 0;
}

static int tuple(pickle *p, int64_t from)
{
    if (from < floor_of(p)) return broken(p, "takes more from its stack than is there");
    int32_t value = pickle_make(p, PICKLE_TUPLE);
    if (value < 0) return value;
    KOLO_TRY(add_items(p, value, from, p->depth));
    p->depth = from;
    return push(p, value);
}

/* Values from `from` on go into the list or dict below them. */
static int extend(pickle *p, int64_t from, enum pickle_kind kind)
{
    int32_t to = 0;
    if (from < floor_of(p)) return broken(p, "takes more from its stack than is there");
    const int64_t until = p->depth;
    p->depth = from;
    KOLO_TRY(top(p, &to));
    if (p->value[to].kind != kind) return broken(p, "adds items to what has none");
    if (kind == PICKLE_DICT && (until - from) % 2) return broken(p, "has a key without a value");
    return add_items(p, to, from, until);
}

/* ---- what is built ---- */

static int push_global(pickle *p, const char *module, size_t m, const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof global_table / sizeof *global_table; i++) {
        if (strlen(global_table[i].module) != m || memcmp(global_table[i].module, module, m)) continue;
        if (strlen(global_table[i].name) != n || memcmp(global_table[i].name, name, n)) continue;
        int32_t value = pickle_make(p, PICKLE_GLOBAL);
        if (value >= 0)
            p->value[value].number = global_table[i].what, p->value[value].type = global_table[i].type;
        return push(p, value);
    }
    return refuse_global(p, module, m, name, n);
}

static int global_of_lines(pickle *p)
{
    const char *module = (const char *)p->at, *m = memchr(module, '\n', (size_t)(p->end - p->at));
    const char *name = m ? m + 1 : NULL,
               *n = m ? memchr(name, '\n', (size_t)((const char *)p->end - name)) : NULL;
    if (!n) return broken(p, "ends early");
    p->at = (const unsigned char *)n + 1;
    return push_global(p, module, (size_t)(m - module), name, (size_t)(n - name));
}

static int global_of_stack(pickle *p)
{
    int32_t name = 0, module = 0;
    KOLO_TRY(pop(p, &name));
    KOLO_TRY(pop(p, &module));
    const pickle_value *n = &p->value[name], *m = &p->value[module];
    if (n->kind != PICKLE_TEXT || m->kind != PICKLE_TEXT) return broken(p, "names something that is no text");
    return push_global(p, m->text, (size_t)m->count, n->text, (size_t)n->count);
}

static const pickle_value *argument(const pickle *p, const pickle_value *tuple_, int i, enum pickle_kind kind)
{
    if (tuple_->kind != PICKLE_TUPLE || i >= tuple_->count) return NULL;
    const pickle_value *v = &p->value[tuple_->item[i]];
    return v->kind == kind ? v : NULL;
}

/* ("storage", TYPE, key, device, elements): the numbers themselves lie elsewhere in the file. */
static int storage(pickle *p)
{
    int32_t id = 0, value;
    KOLO_TRY(pop(p, &id));
    if ((value = pickle_make(p, PICKLE_STORAGE)) < 0) return value;
    const pickle_value *a = &p->value[id], *what = argument(p, a, 0, PICKLE_TEXT),
                       *type = argument(p, a, 1, PICKLE_GLOBAL), *key = argument(p, a, 2, PICKLE_TEXT),
                       *count = argument(p, a, 4, PICKLE_NUMBER);
    if (!what || what->count != 7 || memcmp(what->text, "storage", 7) || !type ||
        type->number != STORAGE_OF || !key || !count || count->number < 0)
        return broken(p, "refers to data in another way than torch.save does");
    if (a->count > 5 && !argument(p, a, 5, PICKLE_NONE))
        return kolo_fail(KOLO_EINPUT, "%s: it holds views of tensors in the form of PyTorch 0.1; %s", p->path,
                         cure);
    p->value[value].type = type->type;
    p->value[value].number = count->number;
    p->value[value].text = key->text;
    p->value[value].count = key->count;
    return push(p, value);
}

/* (storage, offset, shape, strides, ...) */
static int tensor(pickle *p, const pickle_value *a)
{
    const int32_t *item = a->item;
    const pickle_value *offset = argument(p, a, 1, PICKLE_NUMBER);
    if (!argument(p, a, 0, PICKLE_STORAGE) || !offset || !argument(p, a, 2, PICKLE_TUPLE) ||
        !argument(p, a, 3, PICKLE_TUPLE))
        return broken(p, "makes a tensor of something else than storage, offset, shape and strides");
    const int64_t number = offset->number;
    const int32_t parts[] = {item[0], item[2], item[3]}; /* make() may move the values, not their items */
    int32_t value = pickle_make(p, PICKLE_TENSOR);
    if (value < 0) return value;
    pickle_value *v = &p->value[value];
    v->number = number;
    for (int i = 0; i < 3; i++) {
        KOLO_TRY(kolo_grow(&v->item, &v->capacity, v->count, sizeof *v->item));
        v->item[v->count++] = parts[i];
    }
    return push(p, value);
}

static int reduce(pickle *p, bool object)
{
    int32_t arguments = 0, function = 0;
    KOLO_TRY(pop(p, &arguments));
    KOLO_TRY(pop(p, &function));
    const pickle_value *f = &p->value[function], *a = &p->value[arguments];
    if (f->kind != PICKLE_GLOBAL || a->kind != PICKLE_TUPLE) return broken(p, "calls what is no function");
    switch ((enum global)f->number) {
    case DICT_OF:
        if (a->count) return broken(p, "makes a dict of arguments");
        return push_new(p, PICKLE_DICT, 0);
    case TENSOR_OF: return object ? broken(p, "makes an object of a function") : tensor(p, a);
    case PARAMETER_OF:
        if (!argument(p, a, 0, PICKLE_TENSOR)) return broken(p, "makes a parameter of no tensor");
        return push(p, a->item[0]);
    case PLAIN: return push_new(p, PICKLE_OTHER, 0);
    default: return broken(p, "makes a storage of its own");
    }
}

/* State of an object: a dict's attributes, or options; nobody asks for them. */
static int pickle_build(pickle *p)
{
    int32_t state = 0, object = 0;
    KOLO_TRY(pop(p, &state));
    KOLO_TRY(top(p, &object));
    if (p->value[object].kind != PICKLE_DICT && p->value[object].kind != PICKLE_OTHER)
        return broken(p, "gives a state to what has none");
    return 0;
}

/* ---- memory ---- */

static int remember(pickle *p, uint64_t place, uint64_t most)
{
    int32_t value = 0;
    KOLO_TRY(top(p, &value));
    /* its memory is as long as itself */
    if (place >= most) return broken(p, "remembers more than it can hold");
    p->memo[place] = value;
    if ((int64_t)place >= p->memo_count) p->memo_count = (int64_t)place + 1;
    return 0;
}

static int recall(pickle *p, uint64_t place)
{
    if (place >= (uint64_t)p->memo_count || p->memo[place] < 0)
        return broken(p, "recalls what it did not remember");
    return push(p, p->memo[place]);
}

/* ---- the machine ---- */

/* A length of `bytes` bytes, then so many bytes: *text. */
static int counted(pickle *p, int bytes, const unsigned char **text, uint64_t *length)
{
    if (p->end - p->at < bytes) return broken(p, "ends early");
    *length = reader_number(p->at, bytes);
    p->at += bytes;
    if (*length > (uint64_t)(p->end - p->at)) return broken(p, "ends early");
    *text = p->at;
    p->at += *length;
    return 0;
}

static int push_counted_text(pickle *p, int bytes)
{
    const unsigned char *text = NULL;
    uint64_t length = 0;
    KOLO_TRY(counted(p, bytes, &text, &length));
    return push_text(p, text, length);
}

static int push_long(pickle *p, int bytes)
{
    const unsigned char *text = NULL;
    uint64_t length = 0, value;
    KOLO_TRY(counted(p, bytes, &text, &length));
    if (length > 8) return push_new(p, PICKLE_OTHER, 0);
    value = reader_number(text, (int)length);
    if (length && length < 8 && text[length - 1] & 0x80) value |= UINT64_MAX << 8 * length;
    return push_new(p, PICKLE_NUMBER, (int64_t)value);
}

/* A number of so many bytes behind the opcode. */
static int fixed(pickle *p, int bytes, uint64_t *value)
{
    if (p->end - p->at < bytes) return broken(p, "ends early");
    *value = reader_number(p->at, bytes);
    p->at += bytes;
    return 0;
}

/* Marks, tuples, lists, dicts. 1: it was none of them. */
static int run_container(pickle *p, unsigned char op)
{
    int64_t from = p->depth;
    switch (op) {
    case '(':
        KOLO_TRY(kolo_grow(&p->mark, &p->mark_capacity, p->marks, sizeof *p->mark));
        p->mark[p->marks++] = p->depth;
        return 0;
    case '}': return push_new(p, PICKLE_DICT, 0);
    case ']': return push_new(p, PICKLE_LIST, 0);
    case ')': return tuple(p, p->depth);
    case 0x85: return tuple(p, p->depth - 1);
    case 0x86: return tuple(p, p->depth - 2);
    case 0x87: return tuple(p, p->depth - 3);
    case 't': KOLO_TRY(pop_mark(p, &from)); return tuple(p, from);
    case 'a': return extend(p, p->depth - 1, PICKLE_LIST);
    case 's': return extend(p, p->depth - 2, PICKLE_DICT);
    case 'e': KOLO_TRY(pop_mark(p, &from)); return extend(p, from, PICKLE_LIST);
    case 'u': KOLO_TRY(pop_mark(p, &from)); return extend(p, from, PICKLE_DICT);
    default: return 1;
    }
}

/* Plain values. 1: it was none. */
static int run_value(pickle *p, unsigned char op)
{
    uint64_t value = 0;
    switch (op) {
    case 'N': return push_new(p, PICKLE_NONE, 0);
    case 0x88: return push_new(p, PICKLE_NUMBER, 1);
    case 0x89: return push_new(p, PICKLE_NUMBER, 0);
    case 'J': KOLO_TRY(fixed(p, 4, &value)); return push_new(p, PICKLE_NUMBER, (int32_t)value);
    case 'K': KOLO_TRY(fixed(p, 1, &value)); return push_new(p, PICKLE_NUMBER, (int64_t)value);
    case 'M': KOLO_TRY(fixed(p, 2, &value)); return push_new(p, PICKLE_NUMBER, (int64_t)value);
    case 'G': KOLO_TRY(fixed(p, 8, &value)); return push_new(p, PICKLE_OTHER, 0);
    case 0x8A: return push_long(p, 1);
    case 0x8B: return push_long(p, 4);
    case 0x8C:
    case 'U':
    case 'C': return push_counted_text(p, 1);
    case 'X':
    case 'T':
    case 'B': return push_counted_text(p, 4);
    case 0x8D:
    case 0x8E: return push_counted_text(p, 8);
    default: return 1;
    }
}

/* Names, calls, memory; most: how many values may be remembered. 1: it was none of them. */
static int run_call(pickle *p, unsigned char op, uint64_t most)
{
    uint64_t value = 0;
    switch (op) {
    case 0x80:
        KOLO_TRY(fixed(p, 1, &value));
        return value >= 2 && value <= 5 ? 0 : broken(p, "is of another protocol than 2 to 5");
    case 0x95: return fixed(p, 8, &value); /* a frame: its length says nothing more than the file's */
    case 'c': return global_of_lines(p);
    case 0x93: return global_of_stack(p);
    case 'R': return reduce(p, false);
    case 0x81: return reduce(p, true);
    case 'b': return pickle_build(p);
    case 'Q': return storage(p);
    case 'q': KOLO_TRY(fixed(p, 1, &value)); return remember(p, value, most);
    case 'r': KOLO_TRY(fixed(p, 4, &value)); return remember(p, value, most);
    case 0x94: return remember(p, (uint64_t)p->memo_count, most);
    case 'h': KOLO_TRY(fixed(p, 1, &value)); return recall(p, value);
    case 'j': KOLO_TRY(fixed(p, 4, &value)); return recall(p, value);
    default: return 1;
    }
}

static int pickle_run(pickle *p, uint64_t most)
{
    while (p->at < p->end) {
        const unsigned char op = *p->at++;
        int32_t result = 0;
        if (op == '.') {
            if (p->marks || p->depth != 1) return broken(p, "ends with something left to do");
            KOLO_TRY(pop(p, &result));
            return result;
        }
        int rc = run_value(p, op);
        if (rc == 1) rc = run_container(p, op);
        if (rc == 1) rc = run_call(p, op, most);
        if (rc == 1)
            return kolo_fail(KOLO_EINPUT,
                             "%s: its pickle has the opcode 0x%02x, which no dict of tensors needs; %s",
                             p->path, op, cure);
        KOLO_TRY(rc);
    }
    return broken(p, "ends early");
}

int pickle_read(pickle *p)
{
    /* whatever a pickle remembers stands in it, so no place is beyond its own length */
    uint64_t most = (uint64_t)(p->end - p->at);
    if (most > VALUES) most = VALUES;
    p->depth = p->marks = p->memo_count = 0;
    free(p->memo);
    if (!(p->memo = kolo_alloc((size_t)most * sizeof *p->memo + 1))) return KOLO_ENOMEM;
    memset(p->memo, 0xFF, (size_t)most * sizeof *p->memo);
    return pickle_run(p, most);
}

void pickle_free(pickle *p)
{
    for (int64_t i = 0; i < p->values; i++) free(p->value[i].item);
    free(p->value);
    free(p->stack);
    free(p->memo);
    free(p->mark);
    *p = (pickle){0};
}

const pickle_value *pickle_get(const pickle *p, const pickle_value *dict, const char *key)
{
    const int64_t length = (int64_t)strlen(key);
    for (int64_t i = 0; i + 1 < dict->count; i += 2) {
        const pickle_value *k = &p->value[dict->item[i]];
        if (k->kind == PICKLE_TEXT && k->count == length && !memcmp(k->text, key, (size_t)length))
            return &p->value[dict->item[i + 1]];
    }
    return NULL;
}
