// Scalars as the interpreter computes them: integers wrap and divide rounding down, NaN propagates, casts saturate.
// A half is a float in a register, rounded to the half type after each operation that can leave it.

namespace eir {

template <class half> __device__ __forceinline__ float rounded(float x) { return to_float(from_float<half>(x)); }

// -- indices ----------------------------------------------------------------------------------------------------------

// Of x >= 0 and divisor > 0, for which the machine divides faster if it knows.
__device__ __forceinline__ int quotient(int x, int divisor) { return int(unsigned(x) / unsigned(divisor)); }
__device__ __forceinline__ int modulo(int x, int divisor) { return int(unsigned(x) % unsigned(divisor)); }

__device__ __forceinline__ long long quotient(long long x, long long divisor) {
    return (long long)((unsigned long long)(x) / (unsigned long long)(divisor));
}

__device__ __forceinline__ long long modulo(long long x, long long divisor) {
    return (long long)((unsigned long long)(x) % (unsigned long long)(divisor));
}

// `value` if it is in 0 .. extent - 1, else 0; then, where `holds`, the launch reports `fault`: the first one stays.
__device__ __forceinline__ long long checked(long long value, long long extent, bool holds, int* faults, int fault) {
    if (0 <= value && value < extent) return value;
    if (holds) atomicCAS(faults, 0, fault);
    return 0;
}

// -- neighbours in memory ---------------------------------------------------------------------------------------------

template <class T, int count> struct alignas(sizeof(T) * count < 16 ? sizeof(T) * count : 16) Pack {
    T at[count];
};

// Of a pointer aligned to sizeof(T) * count, or to 16 bytes where that is more.
template <int count, class T> __device__ __forceinline__ Pack<T, count> load(const T* pointer) {
    return *reinterpret_cast<const Pack<T, count>*>(pointer);
}

// The same, but only the first `present` elements are there; the others are not read.
template <int count, class T> __device__ __forceinline__ Pack<T, count> load(const T* pointer, int present) {
    if (present >= count) return load<count>(pointer);
    Pack<T, count> pack = {};
    for (int lane = 0; lane < count; ++lane)
        if (lane < present) pack.at[lane] = pointer[lane];
    return pack;
}

// The same, but all 0 unless `holds`: then nothing is read.
template <int count, class T> __device__ __forceinline__ Pack<T, count> load_if(bool holds, const T* pointer) {
    return holds ? load<count>(pointer) : Pack<T, count>{};
}

template <int count, class T>
__device__ __forceinline__ Pack<T, count> load_if(bool holds, const T* pointer, int present) {
    return load<count>(pointer, holds ? present : 0);
}

template <class T, int count> __device__ __forceinline__ void store(T* pointer, const Pack<T, count>& pack) {
    *reinterpret_cast<Pack<T, count>*>(pointer) = pack;
}

template <class T, int count> __device__ __forceinline__ void store(T* pointer, const Pack<T, count>& pack, int present) {
    if (present >= count) return store(pointer, pack);
    for (int lane = 0; lane < count; ++lane)
        if (lane < present) pointer[lane] = pack.at[lane];
}

// -- arithmetic of integers, modulo 2^bits ----------------------------------------------------------------------------

template <class T> struct Wrapping { using type = unsigned; };
template <> struct Wrapping<long long> { using type = unsigned long long; };
template <class T> using wrapping = typename Wrapping<T>::type;

template <class T> __device__ __forceinline__ T add(T x, T y) { return T(wrapping<T>(x) + wrapping<T>(y)); }
template <class T> __device__ __forceinline__ T subtract(T x, T y) { return T(wrapping<T>(x) - wrapping<T>(y)); }
template <class T> __device__ __forceinline__ T multiply(T x, T y) { return T(wrapping<T>(x) * wrapping<T>(y)); }
template <class T> __device__ __forceinline__ T negative(T x) { return T(wrapping<T>(0) - wrapping<T>(x)); }
template <class T> __device__ __forceinline__ T absolute(T x) { return x < T(0) ? negative(x) : x; }

// Rounded down. By 0 it is 0, and the least number by -1 wraps.
template <class T> __device__ __forceinline__ T floor_divide(T x, T y) {
    if (y == T(0)) return T(0);
    if (T(-1) < T(0) && y == T(-1)) return negative(x);
    T result = T(x / y), rest = T(x % y);
    return rest != T(0) && (rest < T(0)) != (y < T(0)) ? T(result - 1) : result;
}

// x - y * floor_divide(x, y), but 0 where y is.
template <class T> __device__ __forceinline__ T remainder(T x, T y) {
    return y == T(0) ? T(0) : subtract(x, multiply(y, floor_divide(x, y)));
}

// -- arithmetic of any numbers ----------------------------------------------------------------------------------------

// NaN if either is.
template <class T> __device__ __forceinline__ T maximum(T x, T y) { return x != x ? x : x > y ? x : y; }
template <class T> __device__ __forceinline__ T minimum(T x, T y) { return x != x ? x : x < y ? x : y; }

// -1, 0 or 1; NaN stays.
template <class T> __device__ __forceinline__ T sign(T x) {
    return x != x ? x : x > T(0) ? T(1) : x < T(0) ? T(-1) : T(0);
}

// -- conversions ------------------------------------------------------------------------------------------------------

template <class T> struct Limits;
template <> struct Limits<signed char> { static constexpr signed char low = -128, high = 127; };
template <> struct Limits<unsigned char> { static constexpr unsigned char low = 0, high = 255; };
template <> struct Limits<int> { static constexpr int low = -2147483647 - 1, high = 2147483647; };
template <> struct Limits<long long> {
    static constexpr long long low = -9223372036854775807LL - 1, high = 9223372036854775807LL;
};

// x cut off, kept in the range of the integer type; NaN gives 0.
template <class integer, class T> __device__ __forceinline__ integer to_integer(T x) {
    using limits = Limits<integer>;
    if (x != x) return integer(0);
    if (x >= T(limits::high)) return limits::high;
    if (x <= T(limits::low)) return limits::low;
    return integer(x);
}

// f64 to f32, inexact results with an odd last bit: rounded once more, to f16, they are rounded as if in one step.
__device__ __forceinline__ float round_to_odd(double x) {
    float nearest = float(x);
    double back = double(nearest);
    if (back == x || x != x) return nearest;
    unsigned bits = __float_as_uint(nearest);
    if ((back < 0 ? -back : back) > (x < 0 ? -x : x)) bits -= 1;
    return __uint_as_float(bits | 1);
}

}  // namespace eir
