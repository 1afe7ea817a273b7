/* The compressed form: keys that are shared through a hub and have no requests at present.
 *
 * Theory of operation.
 *
 * The problem. A shared key as an object, with its place, its entry in the index and its promise, takes 683 bytes. A
 * node that shares a million keys has requests for few of them at any moment; all others are quiet: reported, answered,
 * and with nothing to report until their promise is due.
 *
 * The finding. Of the 59 numbers of a quiet key some 25 differ from their first value. But 250 keys that were reported
 * in one batch share all moments and nearly all allowances. Only use, demand and the time of the last request differ:
 * two to six small numbers.
 *
 * How it works. Promises are kept in groups of keys of one limit that were reported and are due together (see the
 * agenda). The first of a group that becomes quiet is its pattern; every other one is written as differences to it.
 *
 *     Place (48 bytes)   hash | key, form | head: group, slot, length | 24 bytes of differences, or their address
 *
 *     a difference       tag: which number (6 bits), how wide (2 bits) | 1, 3, 5 or 8 bytes, folded so that small
 *                        ones on either side of zero are short
 *
 * - Numbers that mostly change together are written as the difference of one to the other (RELATIONS), such as
 *   `counted` to `used`.
 * - A rate that is a small number of thousandths is written as that number.
 * - More than 24 bytes of differences are stored outside of the place (`aside`): for one key in seven, with one to
 *   three requests each.
 *
 * Nothing may be lost. The written bytes are read again at once, and compared with the whole cell (`hold_all`). A cell
 * that cannot be written exactly stays an object. So a new number of a cell only needs a name in CELL_FIELDS here.
 *
 * When. A cell is compressed when its batch has been answered and released. It stays an object if other code holds a
 * reference to it, if it has something to report, or if `room` is not -1: the next decision has to take the slow path,
 * which makes an object of it again. That decision takes 0.3 to 0.4 us longer, later ones do not.
 *
 * Cost and gain. A further key takes 64 bytes: 48 for the place, 11 for the index, 4 for the promise, 1 for its part of
 * the pattern. If all keys have something to report at once (a lease that has ended, a hub that has lost its data) all
 * of them become objects; that memory is used again later, but not given back to the system. A group with few remaining
 * cells keeps its pattern, some 150 bytes.
 */
#include "places.h"

/* Every number is a word of 64 bits here: fractions by their bits, amounts as two. */
#define AS_INDEX(name, first) AT_##name,
enum { CELL_FIELDS(AS_INDEX) FIELDS };
enum { RATES = FIELDS, MARKS = RATES + 4, AMOUNTS = MARKS + 1, WORDS = AMOUNTS + 8 };
enum { THOUSANDTHS = WORDS, TAGS = WORDS + 4 };
_Static_assert(TAGS <= 64, "a tag has six bits for what it is about");

#define PATTERN_MAX (WORDS * 9 + 2)
#define DIFFERENCES_MAX 255

/* Pairs of numbers with mostly the same difference in all cells: the first is written as its difference to the second.
 */
#define RELATIONS(X)                                                                                                 \
    X(counted, used) X(confirmed_current, used) X(charged, used) X(window_demand, used) X(until_ns, opened_ns)       \
    X(measured_ns, reported_ns) X(touched_ns, reported_ns) X(heard_ns, reported_ns) X(base, allowance) X(low_water, allowance)

static const struct {
    uint8_t what, from;
} relations[] = {
#define AS_RELATION(what, from) {AT_##what, AT_##from},
    RELATIONS(AS_RELATION)};

/* ------------------------------------------------------------------ a cell as words */

static void
read_cell(const Cell *cell, uint64_t *words)
{
    int at = 0;
#define READ_FIELD(name, first) words[at++] = (uint64_t)cell->name;
#define READ_RATE(name) memcpy(&words[at++], &cell->name, 8);
#define READ_MARK(name) words[at] = words[at] << 1 | (cell->name != 0);
#define READ_AMOUNT(name) words[at++] = (uint64_t)cell->name, words[at++] = (uint64_t)(cell->name >> 64);
    CELL_FIELDS(READ_FIELD)
    CELL_RATES(READ_RATE)
    words[at] = 0;
    CELL_MARKS(READ_MARK)
    at++;
    CELL_AMOUNTS(READ_AMOUNT)
    words[AT_place] = 0;
    for (size_t each = 0; each < sizeof(relations) / sizeof(*relations); each++) {
        words[relations[each].what] -= words[relations[each].from];
    }
}

static void
write_cell(const uint64_t *given, Cell *cell)
{
    uint64_t words[WORDS], marks = given[MARKS];
    memcpy(words, given, sizeof(words));
    for (size_t each = 0; each < sizeof(relations) / sizeof(*relations); each++) {
        words[relations[each].what] += words[relations[each].from];
    }
    int at = 0, mark = 0;
#define COUNT_MARK(name) mark++;
#define WRITE_FIELD(name, first) cell->name = (i64)words[at++];
#define WRITE_RATE(name) memcpy(&cell->name, &words[at++], 8);
#define WRITE_MARK(name) cell->name = marks >> --mark & 1;
#define WRITE_AMOUNT(name) at += 2, cell->name = (i128)((unsigned __int128)words[at - 1] << 64 | words[at - 2]);
    CELL_FIELDS(WRITE_FIELD)
    CELL_RATES(WRITE_RATE)
    CELL_MARKS(COUNT_MARK)
    CELL_MARKS(WRITE_MARK)
    at++;
    CELL_AMOUNTS(WRITE_AMOUNT)
    cell->dirty = 0; /* otherwise the cell would stay an object */
}

/* Whether those words hold the whole cell except its place. */
static bool
hold_all(const uint64_t *words, const Cell *cell)
{
    Cell again;
    write_cell(words, &again);
    again.place = cell->place;
#define IS_SAME(name, first) &&again.name == cell->name
#define IS_SAME_RATE(name) &&memcmp(&again.name, &cell->name, sizeof(double)) == 0
#define IS_SAME_NUMBER(name) IS_SAME(name, 0)
    return cell->dirty == 0 CELL_FIELDS(IS_SAME) CELL_RATES(IS_SAME_RATE) CELL_MARKS(IS_SAME_NUMBER) CELL_AMOUNTS(IS_SAME_NUMBER);
}

/* ------------------------------------------------------------------ words by their differences */

static const uint8_t sizes[] = {1, 3, 5, 8};

static uint8_t *
put(uint8_t *to, int tag, uint64_t difference)
{
    uint64_t folded = difference << 1 ^ (uint64_t)((i64)difference >> 63); /* small if it is near zero on either side */
    int size = 0;
    while (sizes[size] < 8 && folded >> (8 * sizes[size]) != 0) {
        size++;
    }
    *to++ = (uint8_t)(tag << 2 | size);
    memcpy(to, &folded, sizes[size]); /* little-endian */
    return to + sizes[size];
}

/* Whether a rate is a small number of thousandths to the last bit. */
static bool
in_thousandths(uint64_t word, i64 *thousandths)
{
    double rate, again;
    memcpy(&rate, &word, 8);
    if (!(rate > -1e12 && rate < 1e12)) {
        return false;
    }
    *thousandths = (i64)(rate * 1000 + (rate < 0 ? -0.5 : 0.5));
    again = (double)*thousandths / 1000;
    return memcmp(&again, &rate, 8) == 0;
}

/* Write the differences; returns the number of bytes. */
static int
write_differences(const uint64_t *words, const uint64_t *pattern, uint8_t *bytes)
{
    uint8_t *to = bytes;
    for (int at = 0; at < WORDS; at++) {
        i64 thousandths;
        if (words[at] == pattern[at]) {
            continue;
        }
        if (at >= RATES && at < MARKS && in_thousandths(words[at], &thousandths)) {
            to = put(to, THOUSANDTHS + at - RATES, (uint64_t)thousandths);
        } else {
            to = put(to, at, words[at] - pattern[at]);
        }
    }
    return (int)(to - bytes);
}

static void
read_differences(const uint8_t *bytes, int length, uint64_t *words)
{
    const uint8_t *end = bytes + length;
    while (bytes < end) {
        int tag = *bytes >> 2, size = sizes[*bytes & 3];
        uint64_t folded = 0;
        memcpy(&folded, bytes + 1, (size_t)size);
        bytes += 1 + size;
        uint64_t difference = folded >> 1 ^ -(folded & 1);
        if (tag >= THOUSANDTHS) {
            double rate = (double)(i64)difference / 1000;
            memcpy(&words[RATES + tag - THOUSANDTHS], &rate, 8);
        } else {
            words[tag] += difference;
        }
    }
}

/* ------------------------------------------------------------------ patterns */

/* The pattern of a group, which is written as differences to a cell of zeros. */
static void
read_pattern(const Group *group, uint64_t *words)
{
    uint16_t length;
    memset(words, 0, WORDS * sizeof(*words));
    memcpy(&length, group->pattern, sizeof(length));
    read_differences(group->pattern + sizeof(length), length, words);
}

static bool
make_pattern(Group *group, const uint64_t *words)
{
    uint64_t nothing[WORDS] = {0};
    uint8_t bytes[PATTERN_MAX];
    uint16_t length = (uint16_t)write_differences(words, nothing, bytes + sizeof(length));
    memcpy(bytes, &length, sizeof(length));
    group->pattern = PyMem_Malloc(sizeof(length) + length);
    if (group->pattern == NULL) {
        return false;
    }
    memcpy(group->pattern, bytes, sizeof(length) + length);
    return true;
}

/* ------------------------------------------------------------------ places */

#define LENGTH_BITS 8
#define SLOT_BITS 8
_Static_assert(GROUP_MAX <= 1 << SLOT_BITS && DIFFERENCES_MAX < 1 << LENGTH_BITS, "both fit in beside an address");
/* The other bits of a word hold an address, which uses no more bits. */

static inline int
length_of(const Place *place)
{
    return (int)(place->quiet.head & 0xFF);
}

static inline int
slot_of(const Place *place)
{
    return (int)(place->quiet.head >> LENGTH_BITS & 0xFF);
}

static inline Group *
group_of(const Place *place)
{
    return (Group *)(uintptr_t)(place->quiet.head >> (LENGTH_BITS + SLOT_BITS));
}

static inline bool
is_aside(const Place *place)
{
    return length_of(place) > (int)sizeof(place->quiet.here);
}

static void
read_place(const Place *place, uint64_t *words)
{
    read_pattern(group_of(place), words);
    read_differences(is_aside(place) ? place->quiet.aside : place->quiet.here, length_of(place), words);
}

/* Whether words can hold the whole cell, and its next charge takes the slow path. */
static bool
can_be_written(const Store *store, const Cell *cell)
{
    const Group *group = cell->group;
    return group != NULL && group->store == store && group->agenda == cell->shard->agenda && !cell->dirty &&
           !cell->urgent && cell->room == -1 && cell->waiters == 0 && cell->lows == Py_None &&
           cell->history == Py_None && cell->table == store->table && cell->shard->index < PyList_GET_SIZE(store->shards) &&
           PyList_GET_ITEM(store->shards, cell->shard->index) == (PyObject *)cell->shard &&
           (uint64_t)(uintptr_t)group >> (64 - LENGTH_BITS - SLOT_BITS) == 0;
}

bool
try_quiet(Store *store, Place *place)
{
    Cell *cell = place->cell;
    if (form_of(place) != WHOLE || Py_REFCNT(cell) != 1 || !can_be_written(store, cell)) {
        return false;
    }
    Group *group = cell->group;
    uint64_t words[WORDS], pattern[WORDS], again[WORDS];
    uint8_t bytes[PATTERN_MAX];
    read_cell(cell, words);
    if (group->pattern == NULL && !make_pattern(group, words)) {
        return false;
    }
    read_pattern(group, pattern);
    int length = write_differences(words, pattern, bytes);
    if (length > DIFFERENCES_MAX) {
        return false;
    }
    Place packed = {.hash = place->hash, .key = place->key | QUIET};
    uint64_t slot_of_group = (uint64_t)(uintptr_t)group << SLOT_BITS | (uint64_t)cell->slot;
    packed.quiet.head = slot_of_group << LENGTH_BITS | (uint64_t)length;
    uint8_t *to = packed.quiet.here;
    if (is_aside(&packed) && (to = packed.quiet.aside = PyMem_Malloc((size_t)length)) == NULL) {
        return false;
    }
    memcpy(to, bytes, (size_t)length);
    read_place(&packed, again);
    if (!hold_all(again, cell)) {
        quiet_free(&packed);
        return false;
    }
    *place = packed;
    cell->group = NULL; /* its promise goes on */
    Py_DECREF(cell);
    return true;
}

void
let_rest(Cell *cell)
{
    Store *store = (Store *)cell->store;
    Place *place = store == NULL || store->lock == NULL || store->lock->held ? NULL : place_of(cell);
    Py_DECREF(cell); /* the place has another reference */
    if (place != NULL) {
        try_quiet(store, place);
    }
}

void
quiet_read(const Place *place, Cell *scratch)
{
    uint64_t words[WORDS];
    read_place(place, words);
    write_cell(words, scratch);
}

Cell *
unquiet(Store *store, Place *place)
{
    Group *group = group_of(place);
    Shard *shard = (Shard *)PyList_GET_ITEM(store->shards, group->shard);
    Cell *cell = cell_new(key_of(place), store->table, shard, 0, 0);
    if (cell == NULL) {
        return NULL;
    }
    uint64_t words[WORDS];
    read_place(place, words);
    write_cell(words, cell);
    quiet_free(place);
    cell->group = group;
    cell->slot = slot_of(place);
    cell->place = (i64)group->places[cell->slot] - 1;
    cell->store = Py_NewRef((PyObject *)store);
    place->key = (uintptr_t)key_of(place);
    place->cell = cell;
    return cell;
}

int
quiet_aside(const Place *place)
{
    return is_aside(place) ? length_of(place) : 0;
}

void
quiet_free(Place *place)
{
    if (is_aside(place)) {
        PyMem_Free(place->quiet.aside);
    }
}

void
quiet_leave(Place *place)
{
    quiet_free(place);
    group_leave(group_of(place), slot_of(place));
}
