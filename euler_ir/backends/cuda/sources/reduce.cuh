// Reductions over the threads that share a row, in one fixed order: pairwise, so that long sums stay accurate.

namespace eir {

// A sum that keeps the rounding errors of its additions (D. E. Knuth, TAOCP volume 2, 4.2.2, theorem B).
template <class T> struct LongSum {
    T sum = T(0), lost = T(0);

    __device__ __forceinline__ void add(T value) {
        T after = sum + value, of_value = after - sum;
        lost += (sum - (after - of_value)) + (value - of_value);
        sum = after;
    }

    // Of an infinite sum the errors are NaN or infinite and mean nothing.
    __device__ __forceinline__ T total() const {
        T corrected = sum + lost;
        return corrected == corrected ? corrected : sum;
    }
};

// What two values of a reduction are combined to.
struct Adding {
    template <class T> __device__ __forceinline__ T operator()(T x, T y) const { return add(x, y); }
    __device__ __forceinline__ float operator()(float x, float y) const { return x + y; }
    __device__ __forceinline__ double operator()(double x, double y) const { return x + y; }
    __device__ __forceinline__ bool operator()(bool x, bool y) const { return x || y; }
};

struct Multiplying {
    template <class T> __device__ __forceinline__ T operator()(T x, T y) const { return multiply(x, y); }
    __device__ __forceinline__ float operator()(float x, float y) const { return x * y; }
    __device__ __forceinline__ double operator()(double x, double y) const { return x * y; }
    __device__ __forceinline__ bool operator()(bool x, bool y) const { return x && y; }
};

struct Larger {
    template <class T> __device__ __forceinline__ T operator()(T x, T y) const { return maximum(x, y); }
};

struct Smaller {
    template <class T> __device__ __forceinline__ T operator()(T x, T y) const { return minimum(x, y); }
};

// The lanes of this thread's team: `lanes` neighbours in a warp.
template <int lanes> __device__ __forceinline__ unsigned team_mask() {
    if (lanes == 32) return 0xffffffffu;
    return ((1u << lanes % 32) - 1) << (threadIdx.x % 32 / lanes * lanes);
}

// Until all of the team are here, and see what the others have stored.
template <int lanes> __device__ __forceinline__ void wait_for_team() { __syncwarp(team_mask<lanes>()); }

template <class T> __device__ __forceinline__ T shuffle_xor(unsigned mask, T value, int offset) {
    return __shfl_xor_sync(mask, value, offset);
}
template <> __device__ __forceinline__ bool shuffle_xor(unsigned mask, bool value, int offset) {
    return __shfl_xor_sync(mask, int(value), offset) != 0;
}
template <> __device__ __forceinline__ signed char shuffle_xor(unsigned mask, signed char value, int offset) {
    return (signed char)(__shfl_xor_sync(mask, int(value), offset));
}
template <> __device__ __forceinline__ unsigned char shuffle_xor(unsigned mask, unsigned char value, int offset) {
    return (unsigned char)(__shfl_xor_sync(mask, int(value), offset));
}

// `value` of `lanes` neighbours combined, for each of them.
template <int lanes, class T, class Combine>
__device__ __forceinline__ T over_lanes(T value, Combine combine) {
#pragma unroll
    for (int offset = lanes / 2; offset > 0; offset /= 2)
        value = combine(value, shuffle_xor(team_mask<lanes>(), value, offset));
    return value;
}

// A warp's `value` goes to its place in shared memory; behind a barrier, `over_parts` combines those of all warps.
template <class T> __device__ __forceinline__ void put_part(unsigned char* shared, T value) {
    if (threadIdx.x % 32 == 0) reinterpret_cast<T*>(shared)[threadIdx.x / 32] = value;
}

template <int warps, class T, class Combine>
__device__ __forceinline__ T over_parts(const unsigned char* shared, Combine combine) {
    return over_lanes<warps>(reinterpret_cast<const T*>(shared)[threadIdx.x % warps], combine);
}

// Each thread's `value` goes to its place in shared memory; behind a barrier, `over_warps` combines those of its lane.
template <class T> __device__ __forceinline__ void put_own(unsigned char* shared, T value) {
    reinterpret_cast<T*>(shared)[threadIdx.x] = value;
}

template <int warps, class T, class Combine>
__device__ __forceinline__ T over_warps(const unsigned char* shared, Combine combine) {
    const T* of_lane = reinterpret_cast<const T*>(shared) + threadIdx.x % 32;
    T parts[warps];
#pragma unroll
    for (int warp = 0; warp < warps; ++warp) parts[warp] = of_lane[32 * warp];
#pragma unroll
    for (int half = warps / 2; half > 0; half /= 2)
#pragma unroll
        for (int warp = 0; warp < half; ++warp) parts[warp] = combine(parts[warp], parts[warp + half]);
    return parts[0];
}

}  // namespace eir
