/* Which keys may have been evicted while their use still counted: two ageing Bloom filters, see `kernel/evicted.py`, whose very
 * bits these are. Nothing of Python's is called, but for the bytes of a key. */
#include "native.h"

#define BITS_PER_KEY 32
#define BITS_MIN ((i64)1 << 10)
#define BITS_MAX ((i64)1 << 32)
#define PROBES 6
#define HASH_KEY_BYTES 16

/* ------------------------------------------------------------------ SipHash-2-4 */

static inline uint64_t
turned(uint64_t word, int by)
{
    return word << by | word >> (64 - by);
}

static inline void
siphash_rounds(uint64_t *v, int rounds)
{
    while (rounds-- > 0) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = turned(v[1], 13) ^ v[0];
        v[3] = turned(v[3], 16) ^ v[2];
        v[0] = turned(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = turned(v[1], 17) ^ v[2];
        v[3] = turned(v[3], 21) ^ v[0];
        v[2] = turned(v[2], 32);
    }
}

static uint64_t
siphash(const uint64_t *words, const char *data, size_t length)
{
    uint64_t v[4] = {words[0] ^ 0x736F6D6570736575ULL, words[1] ^ 0x646F72616E646F6DULL,
                     words[0] ^ 0x6C7967656E657261ULL, words[1] ^ 0x7465646279746573ULL};
    size_t whole = length & ~(size_t)7;
    for (size_t at = 0; at <= whole; at += 8) {
        uint64_t word = 0;
        memcpy(&word, data + at, at < whole ? 8 : length - whole); /* little-endian */
        if (at == whole) {
            word |= (uint64_t)(length & 0xFF) << 56;
        }
        v[3] ^= word;
        siphash_rounds(v, 2);
        v[0] ^= word;
    }
    v[2] ^= 0xFF;
    siphash_rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* ------------------------------------------------------------------ the filters */

/* Drop what has faded. */
static void
turn(Evicted *self, i64 now_ns)
{
    i64 passed_ns = now_ns - self->turned_ns;
    if (passed_ns < self->fade_ns) {
        return;
    }
    size_t size = (size_t)(self->mask + 1) / 8;
    pages_free(self->older, size);
    self->older = self->younger;
    self->younger = NULL;
    if (passed_ns >= 2 * self->fade_ns) {
        pages_free(self->older, size);
        self->older = NULL;
    }
    self->turned_ns = now_ns;
}

/* Where the bits of a key are; false with an error. */
static bool
find_bits(const Evicted *self, PyObject *key, uint64_t *bits)
{
    Py_ssize_t length;
    const char *bytes = PyUnicode_AsUTF8AndSize(key, &length);
    if (bytes == NULL) {
        return false;
    }
    uint64_t hashed = siphash(self->words, bytes, (size_t)length);
    uint64_t start = hashed & 0xFFFFFFFF, stride = hashed >> 32 | 1;
    for (uint64_t number = 0; number < PROBES; number++) {
        bits[number] = (start + number * stride) & (uint64_t)self->mask;
    }
    return true;
}

static bool
has_all(const uint8_t *filter, const uint64_t *bits)
{
    for (int number = 0; filter != NULL && number < PROBES; number++) {
        if (!(filter[bits[number] >> 3] >> (bits[number] & 7) & 1)) {
            return false;
        }
    }
    return filter != NULL;
}

/* Whether a key may have been evicted; a key that cannot be read may have been. */
bool
evicted_recall(Evicted *self, PyObject *key, i64 now_ns)
{
    uint64_t bits[PROBES];
    if (self->younger == NULL && self->older == NULL) {
        return false;
    }
    turn(self, now_ns);
    if (self->younger == NULL && self->older == NULL) {
        return false;
    }
    if (!find_bits(self, key, bits)) {
        PyErr_Clear();
        return true;
    }
    return has_all(self->younger, bits) || has_all(self->older, bits);
}

int
evicted_remember(Evicted *self, PyObject *key, i64 now_ns)
{
    uint64_t bits[PROBES];
    if (!find_bits(self, key, bits)) {
        return -1;
    }
    turn(self, now_ns);
    if (self->younger == NULL) {
        self->younger = pages_new((size_t)(self->mask + 1) / 8);
        if (self->younger == NULL) {
            return -1;
        }
        if (self->older == NULL) {
            self->turned_ns = now_ns;
        }
    }
    for (int number = 0; number < PROBES; number++) {
        self->younger[bits[number] >> 3] |= (uint8_t)(1 << (bits[number] & 7));
    }
    return 0;
}

/* ------------------------------------------------------------------ as Python sees them */

static PyObject *
Evicted_remember(PyObject *object, PyObject *args)
{
    PyObject *key;
    long long now_ns;
    if (!PyArg_ParseTuple(args, "UL:remember", &key, &now_ns) || evicted_remember((Evicted *)object, key, now_ns) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
Evicted_recall(PyObject *object, PyObject *args)
{
    PyObject *key;
    long long now_ns;
    if (!PyArg_ParseTuple(args, "UL:recall", &key, &now_ns)) {
        return NULL;
    }
    return PyBool_FromLong(evicted_recall((Evicted *)object, key, now_ns));
}

static void
forget(Evicted *self)
{
    size_t size = (size_t)(self->mask + 1) / 8;
    pages_free(self->younger, size);
    pages_free(self->older, size);
    self->younger = self->older = NULL;
    self->turned_ns = 0;
}

static PyObject *
Evicted_forget(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    forget((Evicted *)object);
    Py_RETURN_NONE;
}

static PyObject *
Evicted_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    const char *hash_key, *label;
    Py_ssize_t hash_key_bytes, label_bytes;
    long long keys_max, fade_ns;
    if (!PyArg_ParseTuple(args, "y#s#LL:Evicted", &hash_key, &hash_key_bytes, &label, &label_bytes, &keys_max,
                          &fade_ns)) {
        return NULL;
    }
    if (hash_key_bytes != HASH_KEY_BYTES) {
        PyErr_Format(PyExc_ValueError, "a hash key has %d bytes, and this one %zd", HASH_KEY_BYTES, hash_key_bytes);
        return NULL;
    }
    Evicted *self = (Evicted *)type->tp_alloc(type, 0);
    if (self != NULL) {
        memcpy(self->words, hash_key, HASH_KEY_BYTES); /* little-endian */
        self->words[0] ^= siphash(self->words, label, (size_t)label_bytes);
        i64 wanted = keys_max > BITS_MAX / BITS_PER_KEY ? BITS_MAX : keys_max * BITS_PER_KEY, bits = BITS_MIN;
        while (bits < wanted) {
            bits *= 2;
        }
        self->mask = bits - 1;
        self->fade_ns = fade_ns;
    }
    return (PyObject *)self;
}

static void
Evicted_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    forget((Evicted *)object);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMemberDef Evicted_members[] = {
    {"fade_ns", T_LONGLONG, offsetof(Evicted, fade_ns), 0, NULL},
    {NULL},
};

static PyMethodDef Evicted_methods[] = {
    {"remember", Evicted_remember, METH_VARARGS, PyDoc_STR("remember(key, now_ns): a key is evicted.")},
    {"recall", Evicted_recall, METH_VARARGS, PyDoc_STR("recall(key, now_ns): whether a key may have been evicted.")},
    {"forget", Evicted_forget, METH_NOARGS, PyDoc_STR("Remember no key.")},
    {NULL},
};

static PyType_Slot Evicted_slots[] = {
    {Py_tp_new, Evicted_new},
    {Py_tp_dealloc, Evicted_dealloc},
    {Py_tp_members, Evicted_members},
    {Py_tp_methods, Evicted_methods},
    {0, NULL},
};

PyType_Spec Evicted_spec = {
    .name = "reconverge.kernel._native.Evicted",
    .basicsize = sizeof(Evicted),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = Evicted_slots,
};
