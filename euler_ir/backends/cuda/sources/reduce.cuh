// Sums of floats in one fixed order, and their rounding errors.

namespace eir {

// A sum that keeps the rounding errors of its additions (D. E. Knuth, TAOCP volume 2, 4.2.2, theorem B).
template <class T> struct Sum {
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

}  // namespace eir
