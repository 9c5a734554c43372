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

// What the machine shuffles has 32 or 64 bits.
template <class T> struct Shuffled { using type = T; };
template <> struct Shuffled<bool> { using type = int; };
template <> struct Shuffled<signed char> { using type = int; };
template <> struct Shuffled<unsigned char> { using type = int; };

template <class T> __device__ __forceinline__ T shuffle_xor(unsigned mask, T value, int offset) {
    return T(__shfl_xor_sync(mask, typename Shuffled<T>::type(value), offset));
}

template <class T> __device__ __forceinline__ T shuffle_up(T value, int offset) {
    return T(__shfl_up_sync(0xffffffffu, typename Shuffled<T>::type(value), offset));
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

// The sum of the values of the threads `before` this one, and of `all` of the block.
template <class T> struct Prefix {
    T before, all;
};

// `shared` has room for a number of each warp; the call after the next one may use it again.
template <int warps, class T>
__device__ __forceinline__ Prefix<T> before_in_block(unsigned char* shared, T value) {
    const Adding combine;
    const int lane = threadIdx.x % 32, own_warp = threadIdx.x / 32;
    T sum = value;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        T others = shuffle_up(sum, offset);
        if (lane >= offset) sum = combine(others, sum);
    }
    T* parts = reinterpret_cast<T*>(shared);
    if (lane == 31) parts[own_warp] = sum;
    __syncthreads();
    T before = T(0), all = T(0);
#pragma unroll
    for (int warp = 0; warp < warps; ++warp) {
        if (warp == own_warp) before = all;
        all = combine(all, parts[warp]);
    }
    T of_lanes = shuffle_up(sum, 1);
    return {lane > 0 ? combine(before, of_lanes) : before, all};
}

}  // namespace eir
