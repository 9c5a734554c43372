"""Loop IR: loop nests over named axes, the same for every device."""
