"""Language models built on euler_ir: tokenizer, data, and the parts around them."""
