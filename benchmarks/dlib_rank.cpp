// dlib's svm_rank_trainer on the queries in a file, for benchmarks/batch.py.
//
//   dlib_rank FILE C EPSILON  prints the CPU seconds of the training alone, then the weights.
//
// FILE: int64 queries, features; then for each query int64 relevant, others, and relevant + others
// rows of doubles, the relevant ones first. dlib takes the mean over all pairs, so its C is SOLAR's
// C times the number of pairs.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <vector>

// Debian's dlib calls BLAS for dot products, which needs linking; dlib's own code is inlined.
#include <dlib/assert.h>
#include <dlib/test_for_odr_violations.h>
#undef DLIB_USE_BLAS
#undef DLIB_USE_LAPACK
#include <dlib/svm.h>

typedef dlib::matrix<double, 0, 1> sample;

static int64_t integer(std::ifstream &in) {
    int64_t value = 0;
    in.read(reinterpret_cast<char *>(&value), sizeof value);
    return value;
}

static sample row(std::ifstream &in, int64_t features) {
    sample x(features);
    in.read(reinterpret_cast<char *>(&x(0)), features * sizeof(double));
    return x;
}

int main(int count, char **words) {
    if (count != 4) return 2;
    std::ifstream in(words[1], std::ios::binary);
    const int64_t queries = integer(in), features = integer(in);
    std::vector<dlib::ranking_pair<sample>> data(queries);
    for (auto &query : data) {
        const int64_t relevant = integer(in), others = integer(in);
        for (int64_t d = 0; d < relevant; ++d) query.relevant.push_back(row(in, features));
        for (int64_t d = 0; d < others; ++d) query.nonrelevant.push_back(row(in, features));
    }
    if (!in) return 3;
    dlib::svm_rank_trainer<dlib::linear_kernel<sample>> trainer(std::atof(words[2]));
    trainer.set_epsilon(std::atof(words[3]));
    const std::clock_t began = std::clock();
    const auto learnt = trainer.train(data);
    std::printf("%.6f\n", double(std::clock() - began) / CLOCKS_PER_SEC);
    const sample w = learnt.basis_vectors(0);
    for (long k = 0; k < w.size(); ++k) std::printf("%.17g\n", w(k));
    return 0;
}
