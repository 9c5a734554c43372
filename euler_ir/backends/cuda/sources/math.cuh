// Elementary functions of float and double. Where exp would magnify the rounding error of its argument, that error is
// carried along. Special values are those of C99's Annex F.

namespace eir {

__device__ __forceinline__ float exp(float x) { return ::expf(x); }
__device__ __forceinline__ double exp(double x) { return ::exp(x); }
__device__ __forceinline__ float log(float x) { return ::logf(x); }
__device__ __forceinline__ double log(double x) { return ::log(x); }
__device__ __forceinline__ float sqrt(float x) { return ::sqrtf(x); }
__device__ __forceinline__ double sqrt(double x) { return ::sqrt(x); }
__device__ __forceinline__ float sin(float x) { return ::sinf(x); }
__device__ __forceinline__ double sin(double x) { return ::sin(x); }
__device__ __forceinline__ float cos(float x) { return ::cosf(x); }
__device__ __forceinline__ double cos(double x) { return ::cos(x); }
__device__ __forceinline__ float tanh(float x) { return ::tanhf(x); }
__device__ __forceinline__ double tanh(double x) { return ::tanh(x); }
__device__ __forceinline__ float erf(float x) { return ::erff(x); }
__device__ __forceinline__ double erf(double x) { return ::erf(x); }
__device__ __forceinline__ float erfc(float x) { return ::erfcf(x); }
__device__ __forceinline__ double erfc(double x) { return ::erfc(x); }
__device__ __forceinline__ float floor(float x) { return ::floorf(x); }
__device__ __forceinline__ double floor(double x) { return ::floor(x); }
__device__ __forceinline__ float fmod(float x, float y) { return ::fmodf(x, y); }
__device__ __forceinline__ double fmod(double x, double y) { return ::fmod(x, y); }
__device__ __forceinline__ float power(float x, float y) { return ::powf(x, y); }
__device__ __forceinline__ double power(double x, double y) { return ::pow(x, y); }
__device__ __forceinline__ float absolute(float x) { return ::fabsf(x); }
__device__ __forceinline__ double absolute(double x) { return ::fabs(x); }
__device__ __forceinline__ float copysign(float x, float y) { return ::copysignf(x, y); }
__device__ __forceinline__ double copysign(double x, double y) { return ::copysign(x, y); }
__device__ __forceinline__ float fused(float x, float y, float z) { return ::fmaf(x, y, z); }
__device__ __forceinline__ double fused(double x, double y, double z) { return ::fma(x, y, z); }

template <class T> __device__ __forceinline__ T rsqrt(T x) { return T(1) / sqrt(x); }

// 1 / (1 + exp(-|x|)), or that times exp(-|x|), which is exact in both tails.
template <class T> __device__ __forceinline__ T sigmoid(T x) {
    T small = exp(-absolute(x));
    return (x >= T(0) ? T(1) : small) / (T(1) + small);
}

// The density of a standard normal number at x.
template <class T> __device__ __forceinline__ T normal_pdf(T x) {
    T size = minimum(absolute(x), T(100));
    T square = size * size, lost = fused(size, size, -square);
    return exp(T(-0.5) * square) * fused(T(-0.5) * lost, T(0.398942280401432677939946), T(0.398942280401432677939946));
}

// The chance that a standard normal number is below x: erfc(-x / sqrt(2)) / 2, with the slope of erfc for what the
// rounded argument lost.
__device__ __forceinline__ float root_of_half_lost(float) { return 1.21016175e-8f; }
__device__ __forceinline__ double root_of_half_lost(double) { return -4.8336466567264567e-17; }

template <class T> __device__ __forceinline__ T normal_cdf(T x) {
    T y = maximum(minimum(x, T(100)), T(-100));
    const T root = T(0.707106781186547524400844);
    T at = -y * root;
    T lost = -fused(y, root, at) - y * root_of_half_lost(x);
    return T(0.5) * (erfc(at) - T(1.12837916709551257389616) * exp(-at * at) * lost);
}

// The tanh approximation of it, sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)), arXiv:1606.08415 section 2.
__device__ __forceinline__ float linear_lost(float) { return -4.53406804e-8f; }
__device__ __forceinline__ double linear_lost(double) { return -9.96930880911092e-17; }
__device__ __forceinline__ float cubic_lost(float) { return 2.39883240e-9f; }
__device__ __forceinline__ double cubic_lost(double) { return -6.1751499181553e-19; }

template <class T> __device__ __forceinline__ T normal_cdf_tanh(T x) {
    const T linear = T(1.59576912160573071175978), cubic = T(0.0713548162726002487763388);
    T size = minimum(absolute(x), T(40));
    T square = size * size, square_lost = fused(size, size, -square);
    T product = square * cubic, product_lost = fused(square, cubic, -product);
    T slope = product + linear, of_linear = slope - product;
    T slope_lost = (product - (slope - of_linear)) + (linear - of_linear) + product_lost;
    slope_lost += fused(square_lost, cubic, linear_lost(x)) + square * cubic_lost(x);
    T argument = size * slope;
    T lost = fused(size, slope, -argument) + size * slope_lost;
    T power = exp(-argument);
    T small = fused(-power, lost, power);
    return (x >= T(0) ? T(1) : small) / (T(1) + small);
}

// Quotient and remainder by the steps of numpy's divmod, so that they agree in every special case.
template <class T> __device__ __forceinline__ T remainder_of_floats(T x, T y) {
    T rest = fmod(x, y);
    if (y == T(0)) return rest;
    if (rest == T(0)) return copysign(T(0), y);
    return (y < T(0)) != (rest < T(0)) ? rest + y : rest;
}

template <class T> __device__ __forceinline__ T floor_divide_floats(T x, T y) {
    T ratio = x / y;
    if (y == T(0)) return ratio;
    T rest = fmod(x, y);
    T result = (x - rest) / y;
    if (rest != T(0) && (y < T(0)) != (rest < T(0))) result -= T(1);
    if (result == T(0)) return copysign(T(0), ratio);
    T whole = floor(result);
    return result - whole > T(0.5) ? whole + T(1) : whole;
}

}  // namespace eir
