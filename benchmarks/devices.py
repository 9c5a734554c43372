"""What GPUs can do at most, by NVIDIA's data sheets, and which part of it was used."""

NOT_KNOWN = "n/a"

# Dense TFLOP/s of bf16 on tensor cores with f32 accumulation, at boost clock and full power, by what the name of a
# device contains; the first that fits. Data sheets give twice as much "with sparsity", which a product here has not.
PEAK_TFLOPS = (
    ("B200", 2250.0),
    ("H200 NVL", 835.5),
    ("H200", 989.5),
    ("GH200", 989.5),
    ("H100 NVL", 835.5),
    ("H100 PCIe", 756.5),
    ("H100", 989.5),
    ("H800", 989.5),
    ("A100", 312.0),
    ("A800", 312.0),
    ("L40S", 362.0),
    ("L4", 121.0),
    ("A40", 149.7),
    ("A30", 165.0),
    ("A10", 125.0),
    ("RTX 4090", 165.2),
    ("RTX 3090", 71.0),
)


def peak_tflops(name):
    """Those of the device that its driver calls `name`; None for one that is not in the table."""
    words = f" {name.replace('-', ' ')} "
    return next((peak for part, peak in PEAK_TFLOPS if f" {part} " in words), None)


def utilisation(gflop, milliseconds, name):
    """The model FLOPs utilisation (Chowdhery et al. 2022, "PaLM", appendix B), 0 to 1, of a step that takes
    `milliseconds` and computes `gflop` billions of operations; None where the device's peak is not known.
    """
    peak = peak_tflops(name)
    return None if peak is None else gflop / milliseconds / peak


def in_words(part):
    """`utilisation` for a table."""
    return NOT_KNOWN if part is None else f"{100 * part:.1f} %"
