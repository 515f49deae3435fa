/*
 * The loops of unreliable.rs as a C program has them.
 */
#include "loops.h"

POST_AND_POLL(c_unreliable_send, unreliable, IBV_WR_SEND, )
POST_AND_POLL(c_unreliable_write, unreliable, IBV_WR_RDMA_WRITE, REMOTE)
