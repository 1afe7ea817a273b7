/* Remembers the use of keys that were evicted while it still counted: `kernel/evicted.py` explains the two memories, of
 * bits or of counters. Both kernels store the same bits. Only the bytes of a key are read through Python. */
#include "native.h"

#define BITS_PER_KEY 32
#define BITS_MIN ((i64)1 << 16)
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

/* The younger memory becomes the older one. */
static void
age(Evicted *self)
{
    pages_free(self->older, self->size);
    self->older = self->younger;
    self->younger = NULL;
}

static void
forget(Evicted *self)
{
    age(self);
    age(self);
}

/* Allocates one memory: of bits for a node with a hub, of counters for one without. */
static uint8_t *
memory_new(Evicted *self, size_t size)
{
    self->size = size;
    return pages_new(size);
}

/* Drop what has faded. */
static void
turn(Evicted *self, i64 now_ns)
{
    i64 passed_ns = now_ns - self->turned_ns;
    if (passed_ns < self->fade_ns) {
        return;
    }
    age(self);
    if (passed_ns >= 2 * self->fade_ns) {
        pages_free(self->older, self->size);
        self->older = NULL;
    }
    self->older_ns = self->turned_ns;
    self->turned_ns = now_ns;
}

static bool
is_empty(const Evicted *self)
{
    return self->younger == NULL && self->older == NULL;
}

/* The places of a key's bits; false with an error. */
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

/* Whether a key may have been evicted; true also for a key that cannot be read. */
bool
evicted_recall(Evicted *self, PyObject *key, i64 now_ns)
{
    uint64_t bits[PROBES];
    if (is_empty(self)) {
        return false;
    }
    turn(self, now_ns);
    if (is_empty(self)) {
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
        self->younger = memory_new(self, (size_t)(self->mask + 1) / 8);
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

/* ------------------------------------------------------------------ the counters */

#define LEVEL_PARTS 16
#define EXACT ((i64)1 << 12)
#define MANTISSAS (EXACT / 2)
#define AMOUNT_MAX ((EXACT - 1) << 30)

/* An amount in 16 bits, rounded up. */
static uint16_t
code_of(i64 amount)
{
    if (amount < EXACT) {
        return (uint16_t)amount;
    }
    int shift = 64 - __builtin_clzll((unsigned long long)amount) - 12;
    i64 mantissa = (amount + ((i64)1 << shift) - 1) >> shift;
    return (uint16_t)(EXACT + (shift - 1) * MANTISSAS + mantissa - MANTISSAS);
}

/* The largest amount that has a code. */
static i64
amount_of(uint16_t code)
{
    if (code < EXACT) {
        return code;
    }
    i64 beyond = code - EXACT;
    return (beyond % MANTISSAS + MANTISSAS) << (beyond / MANTISSAS + 1);
}

/* The places of a key's counters; false with an error. */
static bool
find_counters(const Evicted *self, PyObject *key, uint64_t *places)
{
    if (!find_bits(self, key, places)) {
        return false;
    }
    for (int number = 0; number < PROBES; number++) {
        places[number] &= (uint64_t)self->mask >> 3;
    }
    return true;
}

/* Raise the counters at some places to at least an amount. -1 with an error. */
static int
raise_to(Evicted *self, uint8_t **memory, const uint64_t *places, i64 amount)
{
    if (amount == 0) {
        return 0;
    }
    if (*memory == NULL && (*memory = memory_new(self, (size_t)(self->mask + 1) / 4)) == NULL) {
        return -1;
    }
    uint16_t *counters = (uint16_t *)*memory, code = code_of(amount);
    for (int number = 0; number < PROBES; number++) {
        if (counters[places[number]] < code) {
            counters[places[number]] = code;
        }
    }
    return 0;
}

static i64
least(const uint8_t *memory, const uint64_t *places)
{
    if (memory == NULL) {
        return 0;
    }
    const uint16_t *counters = (const uint16_t *)memory;
    uint16_t code = counters[places[0]];
    for (int number = 1; number < PROBES; number++) {
        code = counters[places[number]] < code ? counters[places[number]] : code;
    }
    return amount_of(code);
}

/* Move to a window. If the clock has gone back by one window, stay; if it has gone back further, follow it. */
static void
enter(Evicted *self, i64 epoch)
{
    i64 steps = epoch - self->epoch;
    if (steps == -1 || steps == 0) {
        return;
    }
    age(self);
    if (steps != 1) {
        age(self);
    }
    self->epoch = epoch;
}

int
evicted_keep_window(Evicted *self, PyObject *key, i64 epoch, i64 current, i64 previous, i64 now_ns)
{
    uint64_t places[PROBES];
    if (current > AMOUNT_MAX || previous > AMOUNT_MAX) {
        return 0;
    }
    if (!find_counters(self, key, places)) {
        return -1;
    }
    enter(self, epoch);
    self->turned_ns = now_ns;
    return raise_to(self, &self->younger, places, current) < 0 || raise_to(self, &self->older, places, previous) < 0 ? -1 : 1;
}

int
evicted_window_of(Evicted *self, PyObject *key, i64 now_ns, Window *window)
{
    uint64_t places[PROBES];
    if (now_ns - self->turned_ns >= 2 * self->fade_ns) {
        forget(self);
    }
    if (is_empty(self)) {
        return 0;
    }
    if (!find_counters(self, key, places)) {
        return -1;
    }
    *window = (Window){self->epoch, least(self->younger, places), least(self->older, places)};
    return 1;
}

int
evicted_keep_level(Evicted *self, PyObject *key, i128 level, i64 window_ns, i64 now_ns)
{
    uint64_t places[PROBES];
    turn(self, now_ns);
    i64 began_ns = is_empty(self) ? now_ns : self->turned_ns;
    i128 parts = LEVEL_PARTS * (level + (i128)self->rate * (now_ns - began_ns));
    i128 amount = parts / window_ns + (parts % window_ns > 0);
    if (amount > AMOUNT_MAX) {
        return 0;
    }
    if (!find_counters(self, key, places)) {
        return -1;
    }
    self->turned_ns = began_ns;
    return raise_to(self, &self->younger, places, (i64)amount) < 0 ? -1 : 1;
}

static i128
level_in(const Evicted *self, const uint8_t *memory, i64 began_ns, const uint64_t *places, i64 window_ns, i64 now_ns)
{
    i128 kept = ((i128)least(memory, places) * window_ns + LEVEL_PARTS - 1) / LEVEL_PARTS;
    i128 level = kept - (i128)self->rate * (now_ns - began_ns);
    return memory == NULL || level < 0 ? 0 : level;
}

int
evicted_level_of(Evicted *self, PyObject *key, i64 window_ns, i64 now_ns, i128 *level)
{
    uint64_t places[PROBES];
    *level = 0;
    if (is_empty(self)) {
        return 0;
    }
    turn(self, now_ns);
    if (!find_counters(self, key, places)) {
        return -1;
    }
    i128 younger = level_in(self, self->younger, self->turned_ns, places, window_ns, now_ns);
    i128 older = level_in(self, self->older, self->older_ns, places, window_ns, now_ns);
    *level = younger < older ? older : younger;
    return 0;
}

/* ------------------------------------------------------------------ as Python sees them */

static PyObject *
bool_or_error(int answer)
{
    return answer < 0 ? NULL : PyBool_FromLong(answer);
}

static PyObject *
Evicted_keep_window(PyObject *object, PyObject *args)
{
    PyObject *key;
    long long epoch, current, previous, now_ns;
    if (!PyArg_ParseTuple(args, "ULLLL:keep_window", &key, &epoch, &current, &previous, &now_ns)) {
        return NULL;
    }
    return bool_or_error(evicted_keep_window((Evicted *)object, key, epoch, current, previous, now_ns));
}

static PyObject *
Evicted_window_of(PyObject *object, PyObject *args)
{
    PyObject *key;
    long long now_ns;
    Window window;
    if (!PyArg_ParseTuple(args, "UL:window_of", &key, &now_ns)) {
        return NULL;
    }
    int kept = evicted_window_of((Evicted *)object, key, now_ns, &window);
    if (kept <= 0) {
        return kept < 0 ? NULL : Py_NewRef(Py_None);
    }
    return Py_BuildValue("LLL", (long long)window.epoch, (long long)window.current, (long long)window.previous);
}

static PyObject *
Evicted_keep_level(PyObject *object, PyObject *args)
{
    PyObject *key, *whole;
    long long window_ns, now_ns;
    i128 level;
    if (!PyArg_ParseTuple(args, "UOLL:keep_level", &key, &whole, &window_ns, &now_ns)) {
        return NULL;
    }
    if (amount_from_whole(whole, &level) < 0) {
        if (PyErr_ExceptionMatches(PyExc_OverflowError)) { /* more than a counter can hold */
            PyErr_Clear();
            Py_RETURN_FALSE;
        }
        return NULL;
    }
    return bool_or_error(evicted_keep_level((Evicted *)object, key, level, window_ns, now_ns));
}

static PyObject *
Evicted_level_of(PyObject *object, PyObject *args)
{
    PyObject *key;
    long long window_ns, now_ns;
    i128 level;
    if (!PyArg_ParseTuple(args, "ULL:level_of", &key, &window_ns, &now_ns) ||
        evicted_level_of((Evicted *)object, key, window_ns, now_ns, &level) < 0) {
        return NULL;
    }
    return whole_from_amount(level);
}

static PyObject *
Evicted_slow_down(PyObject *object, PyObject *args)
{
    Evicted *self = (Evicted *)object;
    long long rate;
    if (!PyArg_ParseTuple(args, "L:slow_down", &rate)) {
        return NULL;
    }
    self->rate = self->rate == 0 || rate < self->rate ? rate : self->rate;
    Py_RETURN_NONE;
}

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

static PyObject *
Evicted_forget(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Evicted *self = (Evicted *)object;
    forget(self);
    self->turned_ns = self->older_ns = self->epoch = 0;
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
    {"rate", T_LONGLONG, offsetof(Evicted, rate), READONLY, NULL},
    {NULL},
};

static PyMethodDef Evicted_methods[] = {
    {"remember", Evicted_remember, METH_VARARGS, PyDoc_STR("remember(key, now_ns): a key is evicted.")},
    {"recall", Evicted_recall, METH_VARARGS, PyDoc_STR("recall(key, now_ns): whether a key may have been evicted.")},
    {"keep_window", Evicted_keep_window, METH_VARARGS, PyDoc_STR("keep_window(key, epoch, current, previous, now_ns)")},
    {"window_of", Evicted_window_of, METH_VARARGS, PyDoc_STR("window_of(key, now_ns)")},
    {"keep_level", Evicted_keep_level, METH_VARARGS, PyDoc_STR("keep_level(key, level, window_ns, now_ns)")},
    {"level_of", Evicted_level_of, METH_VARARGS, PyDoc_STR("level_of(key, window_ns, now_ns)")},
    {"slow_down", Evicted_slow_down, METH_VARARGS, PyDoc_STR("slow_down(rate)")},
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
