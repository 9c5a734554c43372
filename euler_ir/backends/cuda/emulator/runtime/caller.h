// Where the function that uses this was called: in the call, which is right before what it returns to.
#pragma once

#define CALLER (static_cast<const char*>(__builtin_return_address(0)) - 1)
