/* What ibverbs-sys binds. */
#include <infiniband/verbs.h>
#include <infiniband/sa.h>
#include <infiniband/opcode.h>
