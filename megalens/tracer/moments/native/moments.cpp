// Count, mean, central moments, extremes and non-finite counts of tensors, in one pass over memory, on several threads; and their tiles.
//
// A plain shared library without Python, torch or the C++ runtime: ../native.py hands it addresses. Results do not depend on the number of
// threads: tensors are cut into the same pieces, which are merged in the same order, however many work on them.

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// By the versions that glibc has had since it runs on these processors: the newest ones (2.34, when threads moved into libc.so) would keep a wheel from
// older systems. Python has libpthread loaded there.
#if defined(__GLIBC__) && defined(__x86_64__)
#define SINCE "@GLIBC_2.2.5"
#elif defined(__GLIBC__) && defined(__aarch64__)
#define SINCE "@GLIBC_2.17"
#endif
#ifdef SINCE
__asm__(".symver pthread_create, pthread_create" SINCE);
__asm__(".symver pthread_join, pthread_join" SINCE);
#endif

#ifndef SOURCE
#define SOURCE "unknown"
#endif

namespace {

constexpr int BLOCK = 8192;       // bytes: this block and the next, which is fetched meanwhile, lie in a first-level cache
constexpr int VALUES = BLOCK / 2; // of the narrowest type
constexpr int64_t PIECE = 65536;  // values that a thread takes at a time: whole blocks of every type
constexpr int RUN = 32;           // additions in a row in float32
constexpr int THREADS = 256;      // at most, without OpenMP
constexpr int64_t STRETCH = 32768; // values of which a thread makes tiles at a time, at least one row
constexpr int MOST_PARTS = 16;    // of a tensor that is read in one go
constexpr int MOST_IN_GROUPS = 16384; // features of a row that lie in groups

constexpr int COPIES = 4;         // tables of counts that a thread writes in turn
constexpr int MOST_BINS = 1024;   // of either sign
constexpr int TABLE = 2 * MOST_BINS + 80; // counters of a table: its counterparts of other tables do not share a place in the cache
constexpr int64_t COUNTED = 131072; // values that a thread counts before it adds its counts to those of all, at least one row
constexpr int SAMPLE = 512;       // values that are counted one by one before it is known where most lie
constexpr int CODES = 8192;       // values whose codes lie in a first-level cache, beside those they are made of
constexpr int NOWHERE = 0x7000;   // stands for the bin of what is not finite
constexpr int LOG_BASE = (127 - 40) << 23, LOG_TOP = (1 << 29) - 1; // bits of 2^-40, and of the 64 octaves from there on

// Bins of a histogram: how many there are of either sign, and in those of one width how many lie between 0 and 1.
struct Bins {
  int32_t each, log;
  float scale;
};

struct Moments {
  double count, mean, m2, m3, m4, low, high, nan_count, inf_count, negative_inf_count, near_zero_count;
};

// The least number of the type that is not below eps: comparing with it is comparing with eps itself.
double above(double eps, double) { return eps; }
float above(double eps, float) {
  float found = (float)eps;
  uint32_t bits;
  memcpy(&bits, &found, sizeof bits);
  bits += found < eps;
  memcpy(&found, &bits, sizeof bits);
  return found;
}

// Pairwise update: Pébay 2008, SAND2008-6212, equations 2.1 and 3.1 for p = 2, 3, 4.
void merge(Moments &into, double n, double mean, double m2, double m3, double m4, double low, double high) {
  if (into.count == 0) {
    into = {n, mean, m2, m3, m4, low, high, into.nan_count, into.inf_count, into.negative_inf_count, into.near_zero_count};
    return;
  }
  double k = into.count, all = k + n, d = mean - into.mean, a = k / all * d, b = n / all * d;
  into.m4 += m4 + k * b * b * b * b + n * a * a * a * a + 6 * (a * a * m2 + b * b * into.m2) + 4 * (a * m3 - b * into.m3);
  into.m3 += m3 + n * a * a * a - k * b * b * b + 3 * (a * m2 - b * into.m2);
  into.m2 += m2 + n * a * a + k * b * b;
  into.mean += b;
  into.count = all;
  into.low = low < into.low ? low : into.low;
  into.high = high > into.high ? high : into.high;
}

// Adds what was found of other values.
void add(Moments &into, const Moments &m) {
  into.nan_count += m.nan_count;
  into.inf_count += m.inf_count;
  into.negative_inf_count += m.negative_inf_count;
  into.near_zero_count += m.near_zero_count;
  if (m.count) merge(into, m.count, m.mean, m.m2, m.m3, m.m4, m.low, m.high);
}

// Writes what was found of all values.
void write(Moments &all, double *out) {
  if (!all.count) all.mean = all.low = all.high = __builtin_nan("");
  memcpy(out, &all, sizeof all);
}

constexpr int COLUMNS = sizeof(Moments) / sizeof(double);

float from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

uint32_t to_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return bits;
}

float root(float x) { return __builtin_sqrtf(x); }
double root(double x) { return __builtin_sqrt(x); }

// The power of two at or below a positive number, within float32's range.
double power_of_two_below(double x) {
  int64_t bits;
  memcpy(&bits, &x, 8);
  int64_t exponent = (bits >> 52) - 1023;
  exponent = exponent < -126 ? -126 : exponent > 126 ? 126 : exponent;
  bits = (exponent + 1023) << 52;
  memcpy(&x, &bits, 8);
  return x;
}

// Bins that are counted by eights: `groups` times eight of either sign, sizes from the bin `first` on, and the one around zero.
struct Window {
  int first, groups[2];
  bool zeros, cheap;
};

// Where most of the values lie that were counted.
Window window_of(const uint32_t *tables, const Bins &bins) {
  uint32_t of[2][MOST_BINS + 1] = {}, all = 0;
  for (int at = 0; at <= bins.each; at++)
    for (int sign = 0; sign < (at ? 2 : 1); sign++) {
      for (int k = 0; k < COPIES; k++) of[sign][at] += tables[k * TABLE + bins.each + (sign ? -at : at)];
      all += of[sign][at];
    }
  // Eight bins of one sign cost as much as these values one by one.
  const uint32_t few = all / 100;
  Window window = {1, {0, 0}, of[0][0] > few, false};
  uint32_t left = 0;
  const auto next = [&] { return of[0][window.first] + of[1][window.first]; };
  while (window.first < bins.each && left + next() <= 2 * few) left += next(), window.first++;
  // What is behind so many groups is left, as what is behind the last one.
  const int limit = bins.each < 120 ? bins.each / 8 : 15;
  int spare = window.first - 1;
  for (int sign = 0; sign < 2; sign++) {
    int last = bins.each;
    uint32_t above = 0;
    while (last >= window.first && above + of[sign][last] <= few) above += of[sign][last--];
    int &groups = window.groups[sign];
    groups = (last - window.first + 8) / 8;
    groups = groups < limit ? groups : limit;
    const int behind = window.first + 8 * groups, over = behind - 1 - last;
    if (groups && over < spare) spare = over > 0 ? over : 0;
    // None may reach behind the last bin, where sizes lie that belong to it.
    if (behind - 1 - bins.each > spare) spare = behind - 1 - bins.each;
  }
  window.first -= spare;
  left = all - (window.zeros ? of[0][0] : 0);
  for (int sign = 0; sign < 2; sign++)
    for (int i = 0; i < 8 * window.groups[sign]; i++) left -= of[sign][window.first + i];
  window.cheap = 3 * (window.groups[0] + window.groups[1]) + int64_t(left) * 256 / (all ? all : 1) < 80;
  return window;
}

// Numbers that values are cast to: how many bits their fraction has, what becomes of a size from `beyond` on, and whether it is clamped to the largest one before. Mirrored in library.py.
struct Numbers {
  float largest, normal, beyond, becomes;
  int32_t fraction, clamped;
};

}  // namespace

#define NS portable
#define TARGET
#define BYTES 16
#define HALF_CONVERSION 0
#include "block.inc"
#undef NS
#undef TARGET
#undef BYTES
#undef HALF_CONVERSION

#if defined(__x86_64__)
#define NS avx2
#define TARGET __attribute__((target("avx2,fma,f16c")))
#define BYTES 32
#define HALF_CONVERSION 1
#include "block.inc"
#undef NS
#undef TARGET
#undef BYTES

#define NS avx512
#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c")))
#define BYTES 64
#include "block.inc"
#endif

namespace {

// One tensor: `rows` runs of `columns` neighbouring values, `stride` values apart. Mirrored in library.py.
struct Item {
  const char *data;
  int64_t rows, columns, stride, type;
};

typedef void (*MeasureBlock)(const char *, int, const char *, double, Moments &);
typedef void (*TileRow)(const char *, int64_t, int64_t, bool, float *);
typedef void (*CountRun)(const char *, int64_t, const Bins &, uint32_t *);
typedef void (*CastRow)(const char *, int64_t, int, const float *, const double *, const Numbers &, int64_t *, Moments &);
typedef void (*LargestRow)(const char *, int64_t, int64_t, float *);

// What is done with each type.
struct Functions {
  MeasureBlock measure[4];
  TileRow tile[4];
  CountRun count[4];
  CastRow cast[4];
  LargestRow largest[4];
};
#define FUNCTIONS(set)                                                                                                     \
  {                                                                                                                        \
    {set::measure_block<set::Float32>, set::measure_block<set::BFloat16>, set::measure_block<set::Float16>,                \
     set::measure_block<set::Float64>},                                                                                    \
    {set::tile_row<set::Float32>, set::tile_row<set::BFloat16>, set::tile_row<set::Float16>, set::tile_row<set::Float64>}, \
    {set::count_run<set::Float32>, set::count_run<set::BFloat16>, set::count_run<set::Float16>,                            \
     set::count_run<set::Float64>},                                                                                        \
    {set::cast_row<set::Float32>, set::cast_row<set::BFloat16>, set::cast_row<set::Float16>, set::cast_row<set::Float64>}, \
    {set::largest_row<set::Float32>, set::largest_row<set::BFloat16>, set::largest_row<set::Float16>,                      \
     set::largest_row<set::Float64>},                                                                                      \
  }
const Functions PORTABLE = FUNCTIONS(portable);
#if defined(__x86_64__)
const Functions AVX2 = FUNCTIONS(avx2);
const Functions AVX512 = FUNCTIONS(avx512);
#endif
const int SIZES[] = {4, 2, 2, 8};

int best_level() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))) return 0;
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512vl")
             ? 2
             : 1;
#else
  return 0;
#endif
}

const Functions &functions_of(int level) {
#if defined(__x86_64__)
  if (level == 2) return AVX512;
  if (level == 1) return AVX2;
#endif
  return PORTABLE;
}

// Copies values [at, at + n) of an item whose rows do not touch.
void gather(const Item &item, int64_t at, int n, char *to) {
  const int size = SIZES[item.type];
  while (n) {
    int64_t row = at / item.columns, column = at % item.columns, left = item.columns - column;
    int take = left < n ? int(left) : n;
    memcpy(to, item.data + (row * item.stride + column) * size, int64_t(take) * size);
    to += take * size;
    at += take;
    n -= take;
  }
}

struct Piece {
  const Item *item;
  int64_t at, n;
  Moments moments;
};

void measure_piece(Piece &piece, const MeasureBlock *blocks, double eps) {
  const Item &item = *piece.item;
  const MeasureBlock measure = blocks[item.type];
  const int size = SIZES[item.type];
  const int most = BLOCK / size;
  alignas(64) char gathered[BLOCK];
  for (int64_t done = 0; done < piece.n; done += most) {
    const int n = piece.n - done < most ? int(piece.n - done) : most;
    if (item.rows == 1) {
      const char *from = item.data + (piece.at + done) * size;
      measure(from, n, from + n * size, eps, piece.moments);
    } else {
      gather(item, piece.at + done, n, gathered);
      measure(gathered, n, gathered, eps, piece.moments);
    }
  }
}

struct Work {
  Piece *pieces;
  int64_t count;
  int64_t next;
  const MeasureBlock *blocks;
  double eps;
};

void take_pieces(void *given) {
  Work &work = *(Work *)given;
  for (;;) {
    int64_t i = __atomic_fetch_add(&work.next, 1, __ATOMIC_RELAXED);
    if (i >= work.count) return;
    measure_piece(work.pieces[i], work.blocks, work.eps);
  }
}

struct Share {
  void (*take)(void *);
  void *work;
};

void *in_thread(void *given) {
  Share &share = *(Share *)given;
  share.take(share.work);
  return nullptr;
}

typedef void (*Parallel)(void (*)(void *), void *, unsigned, unsigned);

// Has `take` called with the work by as many threads: those of `parallel`, else of our own.
void share_out(void (*take)(void *), void *work, int threads, Parallel parallel) {
  if (threads <= 1) return take(work);
  if (parallel) return parallel(take, work, unsigned(threads), 0);
  pthread_t others[THREADS];
  Share share = {take, work};
  int started = 0;
  // A thread that cannot be started leaves its share to the rest.
  while (started < threads - 1 && started < THREADS && !pthread_create(&others[started], nullptr, in_thread, &share)) started++;
  take(work);
  while (started) pthread_join(others[--started], nullptr);
}

// Rows of values of which tiles are made: `outer` times `rows` of them, each of `groups` times `features` values that lie side by side. Its tiles begin `out` values behind the first ones of the tensor.
struct Plane {
  const char *data;
  int64_t outer, outer_stride, rows, row_stride, groups, group_stride, features, width, out;
};

struct Tiling {
  const Plane *planes;
  int64_t count, next, size;
  TileRow tile;
  bool squares;
  float *out;
};

int64_t rows_at_a_time(const Plane &plane) {
  const int64_t row = plane.groups * plane.features;
  return row && STRETCH / row > 1 ? STRETCH / row : 1;
}

int64_t stretches_of(const Plane &plane) {
  const int64_t at_a_time = rows_at_a_time(plane);
  return plane.groups * plane.features ? (plane.outer * plane.rows + at_a_time - 1) / at_a_time : 0;
}

void take_rows(void *given) {
  Tiling &tiling = *(Tiling *)given;
  for (;;) {
    int64_t stretch = __atomic_fetch_add(&tiling.next, 1, __ATOMIC_RELAXED), at = 0;
    for (; at < tiling.count && stretch >= stretches_of(tiling.planes[at]); at++) stretch -= stretches_of(tiling.planes[at]);
    if (at == tiling.count) return;
    const Plane &plane = tiling.planes[at];
    const int64_t all = plane.outer * plane.rows, at_a_time = rows_at_a_time(plane), first = stretch * at_a_time;
    const int64_t end = all - first < at_a_time ? all : first + at_a_time;
    const int64_t features = plane.groups * plane.features, tiles = (features + plane.width - 1) / plane.width;
    alignas(64) char gathered[MOST_IN_GROUPS * sizeof(double)];
    for (int64_t row = first; row < end; row++) {
      const char *from = plane.data + (row / plane.rows * plane.outer_stride + row % plane.rows * plane.row_stride) * tiling.size;
      if (plane.groups > 1) {
        for (int64_t group = 0; group < plane.groups; group++)
          memcpy(gathered + group * plane.features * tiling.size, from + group * plane.group_stride * tiling.size, plane.features * tiling.size);
        from = gathered;
      }
      tiling.tile(from, features, plane.width, tiling.squares, tiling.out + plane.out + row * tiles);
    }
  }
}

int64_t pieces_of(const Item &item) { return (item.rows * item.columns + PIECE - 1) / PIECE; }

struct Both {
  Tiling *tiling; // or null
  Work work;
};

void take_both(void *given) {
  Both &both = *(Both *)given;
  // Few values are made tiles of, and they lie at the front: they are still in the cache when they are measured.
  if (both.tiling) take_rows(both.tiling);
  take_pieces(&both.work);
}

// Writes one row of figures for each item, and the tiles where there are some to make: in one go, since to wake the other threads takes longer than to measure a small tensor.
int work_out(Tiling *tiling, const Item *items, int64_t count, double *out, int threads, int level, double eps, Parallel parallel) {
  int64_t total = 0;
  for (int64_t i = 0; i < count; i++) total += pieces_of(items[i]);
  Piece *pieces = (Piece *)calloc(total ? total : 1, sizeof(Piece));
  if (!pieces) return 1;
  Piece *piece = pieces;
  for (int64_t i = 0; i < count; i++) {
    const int64_t n = items[i].rows * items[i].columns;
    for (int64_t at = 0; at < n; at += PIECE) *piece++ = {&items[i], at, n - at < PIECE ? n - at : PIECE, {}};
  }
  int64_t stretches = 0;
  for (int64_t i = 0; tiling && i < tiling->count; i++) stretches += stretches_of(tiling->planes[i]);
  const int64_t most = total + stretches;
  Both both = {stretches ? tiling : nullptr, {pieces, total, 0, functions_of(level).measure, eps}};
  share_out(take_both, &both, threads > most ? int(most) : threads, parallel);
  piece = pieces;
  for (int64_t i = 0; i < count; i++) {
    Moments all = {};
    for (int64_t left = pieces_of(items[i]); left; left--, piece++) add(all, piece->moments);
    write(all, out + i * COLUMNS);
  }
  free(pieces);
  return 0;
}

// What is counted: rows of values, in order those of one sample behind those of another.
struct Counting {
  const char *data;
  int64_t outer, outer_stride, rows, row_stride, features, width, samples, type;
  Bins bins;
  CountRun count;
  int64_t next;
  int64_t *out;
};

void take_counts(void *given) {
  Counting &c = *(Counting *)given;
  const int apart = 2 * c.bins.each + 2, size = SIZES[c.type];
  const int64_t per_sample = c.outer * c.rows / c.samples, at_a_time = COUNTED / c.features > 1 ? COUNTED / c.features : 1;
  const int64_t stretches = (per_sample + at_a_time - 1) / at_a_time, tiles = (c.features + c.width - 1) / c.width;
  uint32_t tables[COPIES * TABLE];
  for (;;) {
    const int64_t taken = __atomic_fetch_add(&c.next, 1, __ATOMIC_RELAXED), sample = taken / stretches;
    if (sample >= c.samples) return;
    const int64_t first = taken % stretches * at_a_time, count = per_sample - first < at_a_time ? per_sample - first : at_a_time;
    for (int64_t tile = 0; tile < tiles; tile++) {
      const int64_t begin = tile * c.width, width = c.features - begin < c.width ? c.features - begin : c.width;
      for (int k = 0; k < COPIES; k++) memset(tables + k * TABLE, 0, sizeof(uint32_t) * apart);
      for (int64_t at = 0; at < count;) {
        const int64_t row = sample * per_sample + first + at, left = c.rows - row % c.rows;
        // Rows that touch are one run.
        const int64_t run = tiles > 1 || c.row_stride != c.features ? 1 : left < count - at ? left : count - at;
        const char *from = c.data + (row / c.rows * c.outer_stride + row % c.rows * c.row_stride + begin) * size;
        c.count(from, run * width, c.bins, tables);
        at += run;
      }
      int64_t *out = c.out + (sample * tiles + tile) * (apart - 1);
      for (int i = 0; i < apart - 1; i++) {
        int64_t sum = 0;
        for (int k = 0; k < COPIES; k++) sum += tables[k * TABLE + i];
        if (sum) __atomic_fetch_add(out + i, sum, __ATOMIC_RELAXED);
      }
    }
  }
}

// How a tensor is read: tiles are made of its parts, and its parts measured. Addresses count from where it begins.
struct Reading {
  int64_t type, squares, level;
  double eps;
  Parallel parallel;
  int64_t planes, items;
};

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// What this library was compiled from.
const char *megalens_moments_source() { return SOURCE; }

// The best set of instructions that this processor has: 2 for AVX-512, 1 for AVX2, 0 for what every one has.
int megalens_moments_level() { return best_level(); }

// Writes one row of figures, struct Moments, for each item; values with |x| < eps count as near zero. `parallel` is OpenMP's GOMP_parallel of the runtime that torch uses, so that there is one pool
// of threads, or null. Returns 0, or 1 where memory ran out.
int megalens_moments(const Item *items, int64_t count, double *out, int threads, int level, double eps,
                     Parallel parallel) {
  return work_out(nullptr, items, count, out, threads, level, eps, parallel);
}

// Writes a row of figures for each of `count` tensors that lie in pieces, from those of the pieces: float64 [pieces, count, COLUMNS]. Where nothing is known of a piece, the first one's row stands.
void megalens_merge(const double *rows, int64_t pieces, int64_t count, double *out) {
  for (int64_t i = 0; i < count; i++) {
    Moments all = {}, first;
    memcpy(&first, rows + i * COLUMNS, sizeof first);
    bool known = true;
    for (int64_t piece = 0; piece < pieces && known; piece++) {
      Moments m;
      memcpy(&m, rows + (piece * count + i) * COLUMNS, sizeof m);
      known = m.count == m.count;
      add(all, m);
    }
    known ? write(all, out + i * COLUMNS) : (void)memcpy(out + i * COLUMNS, &first, sizeof first);
  }
}

// Adds to `out`, int64 [samples, tiles, 2 each + 1], how many values of each tile lie in each bin. What is not finite lies in none.
void megalens_count(const char *data, int64_t outer, int64_t outer_stride, int64_t rows, int64_t row_stride, int64_t features, int64_t width,
                    int64_t samples, int64_t type, int each, int log, float scale, int64_t *out, int threads, int level, Parallel parallel) {
  Counting counting = {data,    outer, outer_stride,      rows, row_stride, features, width, samples,
                       type,    {each, log, scale}, functions_of(level).count[type], 0,    out};
  const int64_t most = (outer * rows * features + COUNTED - 1) / COUNTED + samples - 1;
  share_out(take_counts, &counting, threads > most ? int(most) : threads, parallel);
}

// Writes the largest finite size of each block of `rows` rows that touch; of a row the last one has what is left.
void megalens_largest(const char *data, int64_t rows, int64_t columns, int64_t block, int64_t type, float *out, int level) {
  const int64_t blocks = (columns + block - 1) / block;
  for (int64_t row = 0; row < rows; row++)
    functions_of(level).largest[type](data + row * columns * SIZES[type], columns, block, out + row * blocks);
}

// Casts rows that touch, with a factor for each block of a row and what undoes it, or one for all where `block` is 0. Adds to `found` how many values are finite, became 0, lie beyond,
// became the largest number of those, and subnormal; and writes a row of figures of the errors, without those of values that are not finite.
void megalens_cast(const char *data, int64_t rows, int64_t columns, int block, int64_t type, const Numbers *to, const float *encode,
                   const double *decode, int64_t *found, double *out, int level) {
  const int64_t blocks = block ? (columns + block - 1) / block : 0;
  Moments all = {};
  for (int64_t row = 0; row < rows; row++)
    functions_of(level).cast[type](data + row * columns * SIZES[type], columns, block, encode + row * blocks, decode + row * blocks, *to, found, all);
  write(all, out);
}

// Reads the tensor that begins at `origin`. Writes the tiles of each plane, float32 [outer, rows, groups, tiles], the mean of each or the root of its mean square, and a row of figures for each item.
// `given` is a Reading, and behind it are its planes and its items, at most MOST_PARTS each. Returns 0, or 1 where memory ran out.
int megalens_read(const char *given, const char *origin, float *tiles, double *out, int threads) {
  Reading reading;
  Plane planes[MOST_PARTS];
  Item items[MOST_PARTS];
  memcpy(&reading, given, sizeof reading);
  memcpy(planes, given + sizeof reading, reading.planes * sizeof(Plane));
  memcpy(items, given + sizeof reading + reading.planes * sizeof(Plane), reading.items * sizeof(Item));
  for (int64_t i = 0; i < reading.planes; i++) planes[i].data = origin + intptr_t(planes[i].data);
  for (int64_t i = 0; i < reading.items; i++) items[i].data = origin + intptr_t(items[i].data);
  const TileRow tile = functions_of(int(reading.level)).tile[reading.type];
  Tiling tiling = {planes, reading.planes, 0, SIZES[reading.type], tile, reading.squares != 0, tiles};
  return work_out(&tiling, items, reading.items, out, threads, int(reading.level), reading.eps, reading.parallel);
}

}  // extern "C"
#pragma GCC visibility pop
