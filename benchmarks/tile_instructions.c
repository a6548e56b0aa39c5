/* Times AMX's instructions on one core: products, blocks with their loads, and configuring.

       gcc -O2 -mamx-tile -mamx-int8 -mavx512f benchmarks/tile_instructions.c -o DIR/tiles
       taskset -c 1 DIR/tiles

   A block of sums is 2 x 2 tiles, or 1 x 4. Data are rows of a matrix of 768 columns. Weights are
   read from the first cache (16 KB of them) or the second (512 KB). */

#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct config {
  uint8_t palette, start, rest[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};

static struct config config, now;
static int8_t *memory;

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void configure(int rows) {
  memset(&config, 0, sizeof config);
  config.palette = 1;
  for (int i = 0; i < 8; i++) {
    config.row_bytes[i] = 64;
    config.rows[i] = i < 6 ? rows : 16;
  }
  _tile_loadconfig(&config);
}

static void zero(void) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

static void products(void) {
  _tile_dpbusd(0, 4, 6);
  _tile_dpbusd(1, 4, 7);
  _tile_dpbusd(2, 5, 6);
  _tile_dpbusd(3, 5, 7);
}

static void two_by_two(const int8_t *data, const int8_t *weights) {
  _tile_loadd(4, data, 768);
  _tile_loadd(5, data + 16 * 768, 768);
  _tile_loadd(6, weights, 64);
  _tile_loadd(7, weights + 1024, 64);
  products();
}

static void one_by_four(const int8_t *data, const int8_t *weights) {
  _tile_loadd(4, data, 768);
  _tile_loadd(6, weights, 64);
  _tile_dpbusd(0, 4, 6);
  _tile_loadd(7, weights + 1024, 64);
  _tile_dpbusd(1, 4, 7);
  _tile_loadd(6, weights + 2048, 64);
  _tile_dpbusd(2, 4, 6);
  _tile_loadd(7, weights + 3072, 64);
  _tile_dpbusd(3, 4, 7);
}

/* Least nanoseconds of a step of four products over so many bytes of weights. */
static double step_ns(void (*step)(const int8_t *, const int8_t *), int each, int bytes) {
  double least = 1e9;
  for (int round = 0; round < 5; round++) {
    long steps = 0;
    double began = seconds();
    while (steps < 200000)
      for (int at = 0; at < bytes; at += each, steps++)
        step(memory + steps % 12 * 64, memory + (1 << 20) + at);
    double taken = (seconds() - began) / steps;
    least = taken < least ? taken : least;
  }
  return 1e9 * least;
}

/* Least nanoseconds of a block: its tiles emptied in a way, so many steps, its sums stored. */
static double block_ns(int way, int steps) {
  double least = 1e9;
  int *sums = (int *)(memory + (8 << 20));
  for (int round = 0; round < 5; round++) {
    double began = seconds();
    for (int i = 0; i < 20000; i++) {
      if (way == 0) zero();
      if (way == 1) _tile_loadconfig(&config);
      if (way == 2) {
        _tile_storeconfig(&now);
        __m512i is = _mm512_loadu_si512(&now), wanted = _mm512_loadu_si512(&config);
        if (_mm512_cmpneq_epi32_mask(is, wanted))
          _tile_loadconfig(&config);
        else
          zero();
      }
      for (int s = 0; s < steps; s++)
        two_by_two(memory + 64 * s, memory + (1 << 20) + 2048 * s);
      _tile_stored(0, sums, 128);
      _tile_stored(1, sums + 16, 128);
      _tile_stored(2, sums + 512, 128);
      _tile_stored(3, sums + 528, 128);
    }
    double taken = (seconds() - began) / 20000;
    least = taken < least ? taken : least;
  }
  return 1e9 * least;
}

int main(void) {
  if (syscall(SYS_arch_prctl, 0x1023, 18)) return perror("AMX"), 1; /* Linux lends the tiles */
  memory = aligned_alloc(64, 64 << 20);
  memset(memory, 1, 64 << 20);
  puts("rows of a tile | four products, ns | 2 x 2, first cache | second | 1 x 4, first | second");
  int rows[] = {7, 11, 14, 16};
  for (int i = 0; i < 4; i++) {
    configure(rows[i]);
    double began = seconds();
    for (int n = 0; n < 500000; n++) products();
    double alone = (seconds() - began) / 500000 * 1e9;
    printf("%d | %.1f | %.1f | %.1f | %.1f | %.1f\n", rows[i], alone,
           step_ns(two_by_two, 2048, 16 << 10), step_ns(two_by_two, 2048, 512 << 10),
           step_ns(one_by_four, 4096, 16 << 10), step_ns(one_by_four, 4096, 512 << 10));
  }
  puts("steps of a block | emptied, ns | configured | asked, and emptied");
  for (int steps = 1; steps <= 16; steps *= 2)
    printf("%d | %.0f | %.0f | %.0f\n", steps, block_ns(0, steps), block_ns(1, steps),
           block_ns(2, steps));
  return 0;
}
