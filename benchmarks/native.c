/* The C reference: SOLAR-I and SOLAR-II, written for speed.
 *
 * The arithmetic of app/ranking/kernels.py with the same partial sums, on a stream of gaps: `count`
 * rows of `n` doubles. `w`, `x`, `s`, `u` are padded with zeros to a multiple of 8.
 *
 * Four doubles are one GNU vector. With a loop over lanes and without -ffast-math, gcc leaves the
 * partial sums in memory (gcc 12: twice as slow for SOLAR-I, five times for SOLAR-II); vectors are
 * faster even with it. The compiler may contract a*b + c to one FMA, which the kernels never do.
 */
#include <math.h>
#include <stdint.h>

enum outcome { PASSIVE, STEPPED, REFUSED };

static const double LARGEST_SQUARED_NORM = 1e100, LARGEST_LEVERAGE = 1e12;

typedef double lanes __attribute__((vector_size(32)));
typedef double anywhere __attribute__((vector_size(32), aligned(8), may_alias));

static inline lanes load(const double *from) { return *(const anywhere *)from; }
static inline void store(double *to, lanes v) { *(anywhere *)to = v; }
static inline double total(lanes v) { return (v[0] + v[2]) + (v[1] + v[3]); }

struct sums { double margin, squared_norm; };

/* Returns w·x and x·x of one gap, and copies the gap to `copy` unless NULL. */
static inline struct sums measure(int64_t n, const double *restrict w, const double *restrict x,
                                  double *restrict copy)
{
    lanes dot0 = {0}, dot1 = {0}, norm0 = {0}, norm1 = {0};
    double dot_rest = 0, norm_rest = 0;
    int64_t k = 0;
    for (; k + 8 <= n; k += 8) {
        lanes a = load(x + k), b = load(x + k + 4);
        if (copy) store(copy + k, a), store(copy + k + 4, b);
        dot0 += load(w + k) * a, norm0 += a * a;
        dot1 += load(w + k + 4) * b, norm1 += b * b;
    }
    if (k + 4 <= n) {
        lanes a = load(x + k);
        if (copy) store(copy + k, a);
        dot0 += load(w + k) * a, norm0 += a * a;
        k += 4;
    }
    for (; k < n; k++) {
        if (copy) copy[k] = x[k];
        dot_rest += w[k] * x[k], norm_rest += x[k] * x[k];
    }
    return (struct sums){total(dot0 + dot1) + dot_rest, total(norm0 + norm1) + norm_rest};
}

static inline enum outcome judge(struct sums gap, double *hinge)
{
    *hinge = 0;
    if (!(gap.squared_norm <= LARGEST_SQUARED_NORM)) return REFUSED;
    if (!(gap.margin < 1)) return PASSIVE;
    *hinge = 1 - gap.margin;
    return gap.squared_norm > 0 ? STEPPED : PASSIVE;
}

void first_order(int64_t n, int64_t count, double C, const double *restrict gaps,
                 const double *restrict omega, double *restrict w, double *restrict loss,
                 uint8_t *restrict outcome)
{
    for (int64_t t = 0; t < count; t++) {
        const double *restrict x = gaps + t * n;
        struct sums gap = measure(n, w, x, 0);
        outcome[t] = judge(gap, &loss[t]);
        if (outcome[t] != STEPPED) continue;
        double step = loss[t] / (gap.squared_norm + 1 / (2 * (omega[t] * C)));
        for (int64_t k = 0; k < n; k++) w[k] += step * x[k];
    }
}

/* row -= u_i * u_j for four columns, which are returned. */
static inline lanes subtract(double *restrict row, double ui, lanes uj)
{
    lanes v = load(row) - ui * uj;
    store(row, v);
    return v;
}

/* Σ -= u uᵀ and s = Σx in one pass over the four-row panels of the lower triangle. */
static inline void multiply(int64_t width, double *restrict panels, const double *restrict u,
                            const double *restrict x, double *restrict s)
{
    for (int64_t i = 0; i < width; i += 4) {
        int64_t length = i + 4;
        double *restrict row0 = panels, *restrict row1 = row0 + length;
        double *restrict row2 = row1 + length, *restrict row3 = row2 + length;
        double u0 = u[i], u1 = u[i + 1], u2 = u[i + 2], u3 = u[i + 3];
        double x0 = x[i], x1 = x[i + 1], x2 = x[i + 2], x3 = x[i + 3];
        lanes sum0 = {0}, sum1 = {0}, sum2 = {0}, sum3 = {0};
        for (int64_t j = 0; j < i; j += 4) {
            lanes uj = load(u + j), xj = load(x + j);
            lanes v0 = subtract(row0 + j, u0, uj), v1 = subtract(row1 + j, u1, uj);
            lanes v2 = subtract(row2 + j, u2, uj), v3 = subtract(row3 + j, u3, uj);
            sum0 += v0 * xj, sum1 += v1 * xj, sum2 += v2 * xj, sum3 += v3 * xj;
            store(s + j, load(s + j) + ((v0 * x0 + v1 * x1) + (v2 * x2 + v3 * x3)));
        }
        lanes ui = load(u + i), rows = {total(sum0), total(sum1), total(sum2), total(sum3)};
        lanes v0 = subtract(row0 + i, u0, ui), v1 = subtract(row1 + i, u1, ui);
        lanes v2 = subtract(row2 + i, u2, ui), v3 = subtract(row3 + i, u3, ui);
        store(s + i, rows + ((v0 * x0 + v1 * x1) + (v2 * x2 + v3 * x3)));
        panels += 4 * length;
    }
}

static inline double dot(int64_t width, const double *restrict a, const double *restrict b)
{
    lanes left = {0}, right = {0};
    for (int64_t k = 0; k < width; k += 8) {
        left += load(a + k) * load(b + k);
        right += load(a + k + 4) * load(b + k + 4);
    }
    return total(left + right);
}

void second_order(int64_t n, int64_t count, double gamma, const double *restrict gaps,
                  const double *restrict omega, double *restrict w, double *restrict panels,
                  double *restrict u, double *restrict x, double *restrict s,
                  double *restrict loss, uint8_t *restrict outcome)
{
    int64_t width = (n + 7) / 8 * 8;
    for (int64_t t = 0; t < count; t++) {
        outcome[t] = judge(measure(n, w, gaps + t * n, x), &loss[t]);
        if (outcome[t] != STEPPED) continue;
        multiply(width, panels, u, x, s);
        double chi = dot(width, x, s), noise = gamma / omega[t], alpha = 0, shrink = 0;
        if (chi >= 0 && chi <= LARGEST_LEVERAGE * noise)
            alpha = loss[t] / (chi + noise), shrink = 1 / sqrt(chi + noise);
        else
            loss[t] = 0, outcome[t] = REFUSED;
        for (int64_t k = 0; k < width; k++) {
            w[k] += alpha * s[k];
            u[k] = shrink * s[k];
        }
    }
}
