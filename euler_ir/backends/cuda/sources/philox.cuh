// Philox4x32-10 (Salmon et al., SC 2011): the numbers of ops/random.py, bit for bit.

namespace eir {

struct Words {
    unsigned at[4];
};

// Ten rounds over the counter (index low, index high, step low, stream) with the key (seed low, seed high).
__device__ __forceinline__ Words philox(unsigned stream, long long seed, long long step, long long index) {
    unsigned key0 = unsigned(seed), key1 = unsigned((unsigned long long)(seed) >> 32);
    unsigned c0 = unsigned(index), c1 = unsigned((unsigned long long)(index) >> 32), c2 = unsigned(step), c3 = stream;
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        unsigned long long product0 = c0 * 0xD2511F53ull, product1 = c2 * 0xCD9E8D57ull;
        c0 = unsigned(product1 >> 32) ^ c1 ^ key0;
        c1 = unsigned(product1);
        c2 = unsigned(product0 >> 32) ^ c3 ^ key1;
        c3 = unsigned(product0);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

// Numbers in [0, 1): the high 24 bits of word 0, or the high 21 above all of word 1.
__device__ __forceinline__ float uniform_f32(unsigned stream, long long seed, long long step, long long index) {
    return float(philox(stream, seed, step, index).at[0] >> 8) * 0x1p-24f;
}

__device__ __forceinline__ double uniform_f64(unsigned stream, long long seed, long long step, long long index) {
    Words words = philox(stream, seed, step, index);
    unsigned long long bits = (unsigned long long)(words.at[0] >> 11) << 32 | words.at[1];
    return double(bits) * 0x1p-53;
}

}  // namespace eir
