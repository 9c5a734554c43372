// How kernels of attention are told where matrices lie: heads are strided views, wherever these are.
namespace eir {

// Which head of queries: its place along the two batch axes of keys, and among the heads that share those keys.
struct Head {
    unsigned outer, inner, member;
};

__device__ __forceinline__ Head head_at(unsigned number, unsigned inner_heads, unsigned group) {
    const unsigned point = number / group;
    return {point / inner_heads, point % inner_heads, number % group};
}

// Rows of elements side by side; that of number r begins `r leading` elements after `base`.
template <class T> struct Matrix {
    T *base;
    long long leading;
    __device__ __forceinline__ T *row(int number) const { return base + number * leading; }
};

// The matrix of each head; all steps are counted in elements.
template <class T> struct View {
    T *base;
    long long batch0, batch1, group, leading;
    __device__ __forceinline__ Matrix<T> of(const Head &head) const {
        return {base + (head.outer * batch0 + head.inner * batch1 + head.member * group), leading};
    }
};

}  // namespace eir

// The parameters of a kernel that make up one view, and that view.
#define EIR_VIEW(type, name) \
    type *name, long long name##_batch0, long long name##_batch1, long long name##_group, long long name##_leading
#define EIR_VIEW_OF(type, name) \
    eir::View<type> { name, name##_batch0, name##_batch1, name##_group, name##_leading }
